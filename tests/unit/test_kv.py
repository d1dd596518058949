"""The store without a framework."""

import re
import subprocess
import sys
import threading

import numpy as np
import pytest
from fake_core import Cluster

from geomx import kv
from geomx.errors import ConfigError
from geomx.kv import Error, Refused, Store, Timeout
from geomx.spec import DomainSpec, NodeSpec

LAN = DomainSpec(scheduler_host="127.0.0.1", scheduler_port=1, num_servers=1, num_members=2)


def stores(workers=2, observer=False):
    cluster = Cluster(workers, observer)
    specs = [
        NodeSpec(role="worker", party="a", rank=i, lan=LAN, is_master=i == workers, is_central=i == workers)
        for i in range(workers + observer)
    ]
    return cluster, [Store(node, spec) for node, spec in zip(cluster.nodes, specs)]


def together(*tasks):
    """Runs tasks in threads; returns their results, raises their first error."""
    results, errors = [None] * len(tasks), []

    def run(i, task):
        try:
            results[i] = task()
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=item) for item in enumerate(tasks)]
    [t.start() for t in threads]
    [t.join(20) for t in threads]
    if errors:
        raise errors[0]
    return results


def test_pull_gives_the_authoritys_value_then_the_sum_of_the_rounds_pushes():
    _, (a, b) = stores()
    outs = [np.zeros(3, np.float32) for _ in range(2)]

    def work(store, out, first):
        store.init(0, np.full(3, first, np.float32))
        store.pull(0, out)
        initial = out.copy()
        store.push(0, np.full(3, store.rank + 1, np.float32))
        store.pull(0, out)
        return initial

    initials = together(lambda: work(a, outs[0], 5), lambda: work(b, outs[1], 7))
    assert [i.tolist() for i in initials] == [[5, 5, 5]] * 2
    assert [o.tolist() for o in outs] == [[3, 3, 3]] * 2


def test_push_pull_takes_lists_and_without_out_fills_the_values():
    _, (a, b) = stores()

    def work(store):
        values = [np.full(2, store.rank + 1.0, np.float32), np.full((2, 2), 10.0 * (store.rank + 1), np.float16)]
        store.push_pull(["w", "b"], values, priority=[0, -1])
        return values

    for w, b_ in together(lambda: work(a), lambda: work(b)):
        assert w.tolist() == [3, 3] and b_.dtype == np.float16 and b_.tolist() == [[30, 30]] * 2


def test_arrays_of_several_devices_are_summed_and_all_are_filled():
    _, (a,) = stores(1)
    outs = [np.zeros(2, np.float32), np.zeros((2, 2), np.float32)[:, 0]]
    a.push("k", [np.array([1, 2], np.float32), np.array([10, 20], np.float32)])
    a.pull("k", outs)
    assert [o.tolist() for o in outs] == [[11, 22], [11, 22]]


def test_a_server_optimizer_gives_weights():
    _, (a,) = stores(1)
    a.set_optimizer("sgd", learning_rate=0.5)
    a.set_optimizer({"name": "sgd", "learning_rate": 0.5})
    a.init("w", np.ones(2, np.float32))
    out = np.empty(2, np.float32)
    a.push_pull("w", np.array([1, 2], np.float32), out)
    assert out.tolist() == [0.5, 0.0]
    with pytest.raises(Refused, match="optimizer"):
        a.set_optimizer("sgd", learning_rate=0.25)


@pytest.mark.parametrize(
    ("optimizer", "sentence"),
    [
        ({"name": "sgd", "learning_rate": -1}, "optimizer sgd: learning_rate: -1 given, allowed is a number of"),
        ({"name": "adam", "beta1": 1.0}, "optimizer adam: beta1: 1.0 given, allowed is a number from 0 and below 1"),
        ({"name": "sgd", "beta1": 0.5}, "optimizer sgd: beta1: no such parameter; there are: learning_rate, wd"),
        ({"name": "adam", "epsilon": float("nan")}, "optimizer adam: epsilon: nan given"),
        ({"name": "Adam", "wd": True}, "optimizer adam: wd: True given"),
        ({"name": "ftrl", "x": object()}, "optimizer ftrl: x: <object"),
        ({"learning_rate": 1.0}, "optimizer: None given as its name"),
        ({"name": "none", "wd": 1.0}, "optimizer none: takes no parameters"),
    ],
)
def test_optimizers_are_checked(optimizer, sentence):
    _, (a,) = stores(1)
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        a.set_optimizer(optimizer)


def test_compression_travels_as_canonical_text_and_must_be_installed():
    cluster, (a,) = stores(1)
    a.set_gradient_compression({"type": "none"})
    assert cluster.configured == {"compression": '{"name":"none"}'}
    with pytest.raises(ConfigError, match="'type' is None"):
        a.set_gradient_compression({"threshold": 1})
    with pytest.raises(ConfigError, match="compression=nosuch is not installed; there are: .*none"):
        a.set_gradient_compression({"type": "nosuch", "threshold": 0.01})


def test_keys_have_different_names():
    keys = [3, "3", "#3", "##3", -3, "a.b/c d", "ключ", "x" * 300]
    names = [kv.key_name(k) for k in keys]
    assert len(set(names)) == len(keys)
    assert names[:3] == ["#3", "3", "##3"]
    for bad in (True, "", None, 1.5):
        with pytest.raises(TypeError, match="a whole number or a string"):
            kv.key_name(bad)


def test_misuse_is_a_sentence():
    _, (a,) = stores(1)
    x = np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="2 keys but 1 arrays"):
        a.push([1, 2], [x])
    with pytest.raises(ValueError, match="2 keys but 1 priorities"):
        a.push([1, 2], [x, x], priority=[0])
    with pytest.raises(TypeError, match="a numpy array is needed, list given"):
        a.push("k", [[1.0]])
    with pytest.raises(ValueError, match="timeout: -1 given"):
        a.push("k", x, timeout=-1)
    with pytest.raises(ValueError, match="report: loss is nan"):
        a.report("loss", float("nan"))
    with pytest.raises(Error, match="states.txt was not written"):
        a.save_optimizer_states("states.txt")


def test_waits_end_at_their_timeout():
    _, (a, _) = stores()
    a.push("k", np.ones(1, np.float32))
    with pytest.raises(Timeout):
        a.pull("k", np.zeros(1, np.float32), timeout=0.05)
    with pytest.raises(Timeout):
        a.barrier(timeout=0.05)


def test_a_worker_that_left_is_not_waited_for():
    _, (a, b) = stores()
    out = np.zeros(1, np.float32)
    together(lambda: a.push_pull("k", np.ones(1, np.float32), out), lambda: b.push("k", np.ones(1, np.float32)))
    b.leave()
    a.push_pull("k", np.ones(1, np.float32), out, timeout=5)
    assert out.tolist() == [1]


def test_the_master_worker_observes():
    _, (a, master) = stores(1, observer=True)
    assert master.is_master_worker and not master.trains and a.trains
    out = np.zeros(1, np.float32)
    together(lambda: master.init("k", np.full(1, 9, np.float32)), lambda: a.init("k", np.zeros(1, np.float32)))
    master.push_pull("k", np.full(1, 100, np.float32), out, timeout=5)
    assert out.tolist() == [9]
    a.push_pull("k", np.ones(1, np.float32), out)
    master.pull("k", out)
    assert out.tolist() == [1]


def test_an_exception_in_a_with_block_fails_the_run():
    cluster, (a, _) = stores()
    with pytest.raises(ZeroDivisionError), a:
        raise ZeroDivisionError("no batches")
    assert cluster.failure == "worker 0 of party a: ZeroDivisionError: no batches"
    assert a.node.closed


SCRIPT = """
import sys
sys.path[:0] = {path!r}
import conftest
from fake_core import Cluster
from geomx.kv import Store
from geomx.spec import DomainSpec, NodeSpec
cluster = Cluster(1)
store = Store(cluster.nodes[0], NodeSpec(role="worker", party="a", rank=0, lan=DomainSpec(
    scheduler_host="h", scheduler_port=1, num_servers=1, num_members=1)))
from geomx import exits
exits.watch(store)
cluster.nodes[0].fail = lambda message: print("failed:", message, flush=True)
cluster.nodes[0].leave = lambda timeout: print("left", flush=True)
{end}
"""


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("", 0, "left\n"),
        ("raise ValueError('bad data')", 1, "failed: worker 0 of party a: ValueError: bad data\n"),
        (
            "def refuse(timeout): raise RuntimeError('a worker died')\ncluster.nodes[0].leave = refuse",
            1,
            "failed: worker 0 of party a: a worker died\n",
        ),
    ],
)
def test_a_scripts_end_is_told(end, code, said):
    script = SCRIPT.format(path=[p for p in sys.path if p], end=end)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=150)
    assert (ran.returncode, ran.stdout) == (code, said), ran.stderr
