"""The seed's printed loops, on a cluster in this process."""

import re
import threading

import pytest
import seed_page
from fake_core import Cluster
from test_kv import LAN, together

from geomx.errors import ConfigError
from geomx.spec import NodeSpec

NONE = {"type": "none"}


def test_the_page_prints_three_loops():
    assert [len(seed_page.printed(loop).splitlines()) for loop in seed_page.LOOPS] == [30, 32, 44]
    assert 'set_gradient_compression({"type": "bsc", "threshold": 0.01})' in seed_page.printed("bsc")
    assert "astype('float16')" in seed_page.printed("fp16") and "size_lower_bound" in seed_page.printed("mpq")


@pytest.mark.parametrize("loop", seed_page.LOOPS)
def test_filling_in_keeps_every_printed_line(loop):
    script = seed_page.filled(loop)
    compile(script, loop, "exec")
    for line in seed_page.printed(loop).splitlines():
        assert line.strip() == "..." or line in script.splitlines()


def test_another_compression_replaces_only_the_parameters():
    script = seed_page.filled("bsc", compression={"type": "fp16"})
    assert '    kvstore_dist.set_gradient_compression({"type": "fp16"})\n' in script


@pytest.mark.parametrize("loop", seed_page.LOOPS)
def test_the_printed_loop_trains_with_an_observing_master(loop, monkeypatch):
    try:
        import geomx.mxnet as front
    except ConfigError as e:
        pytest.skip(f"MXNet is missing: {e}")
    cluster = Cluster(2, observer=True)
    own = threading.local()
    monkeypatch.setitem(front.mx.kvstore.KVStoreBase.kv_registry, "dist_sync", lambda: own.store)
    script = compile(seed_page.filled(loop, epochs=6, compression=NONE), loop, "exec")
    said = []

    def work(number):
        spec = NodeSpec(role="worker", party="a", rank=number, lan=LAN, is_master=number == 2)
        own.store = front.MxStore(cluster.nodes[number], spec)
        exec(script, {"__name__": "__main__", "print": lambda line, flush: said.append(line)})
        own.store.close()

    front.mx.random.seed(1)
    together(*[lambda n=n: work(n) for n in range(3)])
    told = [re.fullmatch(r"accuracy ([\d.]+) weights (\w+) master (\w+)", line).groups() for line in said]
    workers = [t for t in told if t[2] == "False"]
    assert len(told) == 3 and len(workers) == 2
    assert min(float(t[0]) for t in workers) > 0.8
    if loop != "bsc":  # the first loop doesn't exchange its initial weights, and threads share MXNet's random numbers
        assert workers[0][1] == workers[1][1]
    if loop != "fp16":
        assert cluster.configured == {"compression": '{"name":"none"}'}
