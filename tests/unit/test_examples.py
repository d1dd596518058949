"""The examples, on a cluster in this process."""

import argparse
import runpy
import threading

import pytest
from conftest import ROOT
from fake_core import Cluster
from test_kv import LAN, together

from geomx.errors import ConfigError
from geomx.spec import NodeSpec


def test_cnn_trains_with_the_masters_optimizer_on_the_servers(monkeypatch, capsys):
    try:
        import geomx.mxnet as front
    except ConfigError as e:
        pytest.skip(f"MXNet is missing: {e}")
    cluster = Cluster(2, observer=True)
    own = threading.local()
    monkeypatch.setitem(front.mx.kvstore.KVStoreBase.kv_registry, "dist_sync", lambda: own.store)

    def work(number):
        spec = NodeSpec(role="worker", party="a", rank=number, lan=LAN, is_master=number == 2, is_central=number == 2)
        own.store = front.MxStore(cluster.nodes[number], spec)
        example = runpy.run_path(str(ROOT / "examples" / "cnn.py"), run_name="example")
        given = argparse.Namespace(learning_rate=0.003, batch_size=32, data_slice_idx=number, epoch=4, eval_every=40,
                                   split_by_class=True, cpu=True, mixed_sync=False, dcasgd=False,
                                   data="digits")  # fmt: skip
        example["main"].__globals__["arguments"] = lambda: given
        example["main"]()
        own.store.close()

    together(*[lambda n=n: work(n) for n in range(3)])
    finished = [line for line in capsys.readouterr().out.splitlines() if line.startswith("finished")]
    assert len(finished) == 2 and min(float(line.split()[-1]) for line in finished) > 0.85
    assert '"rescale_grad":0.5' in cluster.configured["optimizer"]
