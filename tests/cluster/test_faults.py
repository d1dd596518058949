"""Mistakes and mishaps inside one process: what is told to whom, and that the rest goes on."""

import itertools
import os
import socket
import threading
import time

import numpy as np
import pytest

from geomx import _core
from geomx.errors import ConfigError
from geomx.kv import Error, Timeout
from geomx.testing import LocalCluster
from geomx.testing.ports import kept_port


def caught(work):
    """What a call raises, in words."""
    with pytest.raises(Error) as raised:
        work()
    return str(raised.value)


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        (np.zeros((10, 3), np.float32), np.zeros((10, 4), np.float32), ("float32 (10, 3)", "float32 (10, 4)")),
        (np.zeros(7, np.float32), np.zeros(7, np.float16), ("float32", "float16")),
    ],
    ids=["shape", "dtype"],
)
def test_tensors_that_differ_are_told_to_both_sides(mine, theirs, words):
    """Who declares first is well until the other comes: it is told by its next call."""

    def work(worker):
        worker.init("w", mine if worker.global_rank == 0 else theirs, timeout=10)
        worker.barrier(world=True, timeout=10)

    cluster = LocalCluster([1, 1]).start()
    try:
        said = errors_of(cluster, work)
    finally:
        cluster.close()
    for sentence in said:
        assert 'key "w"' in sentence
        assert "worker 0 of party party0 has" in sentence
        assert "worker 0 of party party1 has" in sentence
        assert all(word in sentence for word in words), sentence


def errors_of(cluster, work):
    """Every worker's own error; LocalCluster.run would tell the first one to all."""
    said = {}

    def one(worker):
        said[worker.global_rank] = caught(lambda: work(worker))

    threads = [threading.Thread(target=one, args=(w,)) for w in cluster.workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(said) == [w.global_rank for w in cluster.workers]
    return list(said.values())


def test_a_pull_of_a_key_that_nobody_set():
    """Raises by name; the next good key works, leaving isn't held up, and the array is let alone."""

    def work(worker):
        out = np.full(5, 7, np.float32)
        with pytest.raises(Timeout, match='pull of key "nope" was not done after 1 s.*nobody'):
            worker.pull("nope", out, timeout=1)
        worker.barrier(world=True)
        worker.init("good", np.arange(5, dtype=np.float32))
        worker.push_pull("good", np.ones(5, np.float32), got := np.zeros(5, np.float32))
        worker.init("nope", np.zeros(5, np.float32))
        worker.barrier(world=True)
        return got[0], out[0]

    with LocalCluster([2, 1]) as cluster:
        assert cluster.run(work) == [(3.0, 7.0)] * 3


def test_a_pull_that_comes_before_init_gets_the_value():
    def work(worker):
        if worker.global_rank == 0:
            time.sleep(0.5)
            worker.init("w", np.arange(5, dtype=np.float32))
        worker.pull("w", out := np.zeros(5, np.float32), timeout=10)
        return list(out)

    with LocalCluster([2]) as cluster:
        assert cluster.run(work) == [[0, 1, 2, 3, 4]] * 2


@pytest.mark.parametrize("world", [False, True])
def test_a_barrier_names_who_is_missing(world):
    """Servers tell once a second whom they wait for."""
    told = [threading.Event(), threading.Event()]

    def work(worker):
        if worker.global_rank == 1:
            assert all(t.wait(20) for t in told)
            worker.barrier(world)
            return ""
        with pytest.raises(Timeout) as raised:
            worker.barrier(world, timeout=4)
        told[worker.global_rank // 2].set()
        return str(raised.value)

    with LocalCluster([3]) as cluster:
        first, _, third = cluster.run(work)
        for rank, said in ((0, first), (2, third)):
            assert f"worker {rank} of party party0: barrier" in said
            assert "waits for worker 1 of party party0" in said


def test_a_barrier_goes_on_without_one_that_has_left():
    def work(worker):
        if worker.global_rank == 1:
            worker.leave()
        else:
            worker.barrier(timeout=10)
            worker.barrier(world=True, timeout=10)

    with LocalCluster([2, 1]) as cluster:
        cluster.run(work)


def test_one_that_raises_ends_the_run_by_name():
    cluster = LocalCluster([2, 1]).start()
    try:
        cluster.workers[1].fail("ValueError: boom")
        said = caught(lambda: cluster.workers[2].init("w", np.zeros(3, np.float32), timeout=10))
        assert "worker 1 of party party0: ValueError: boom" in said
    finally:
        cluster.close()


def test_bytes_of_strangers_are_counted_while_training_goes_on():
    over = threading.Event()

    def shout(addresses, servers):
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31)
        for address in itertools.cycle(addresses):
            host, _, port = address.rpartition(":")
            for text in (os.urandom(20), greeting, greeting + os.urandom(200)):
                with socket.create_connection((host, int(port)), timeout=5) as connection:
                    connection.settimeout(0.01)
                    try:
                        connection.sendall(text)
                        connection.recv(10)
                    except OSError:
                        pass
            if over.is_set() and all(node.counters()["refused_frames"] for node in servers):
                return

    def work(worker):
        worker.init("w", np.zeros(100, np.float32))
        out = np.zeros(100, np.float32)
        for _ in range(100):
            worker.push_pull("w", np.ones(100, np.float32), out)
            time.sleep(0.01)
        return out[0]

    with LocalCluster([1, 1]) as cluster:
        servers = [node for name, node in cluster.nodes.items() if "worker" not in name]
        addresses = {a for node in cluster.nodes.values() for a in node.addresses.values()}
        shouting = threading.Thread(target=shout, args=(sorted(addresses), servers))
        shouting.start()
        try:
            assert cluster.run(work) == [2.0, 2.0]
        finally:
            over.set()
            shouting.join(20)  # it ends when all have counted
        assert all(node.counters()["refused_frames"] > 0 for node in servers)


FOUR = ("global_scheduler", "global_server", "party", "worker")


@pytest.mark.parametrize("order", list(itertools.permutations(FOUR)), ids="-".join)
def test_any_order_of_starting(order):
    """The party's scheduler and server come one after the other."""
    wan_port, lan_port = kept_port(), kept_port()
    wan = _core.Domain(scheduler_host="127.0.0.1", scheduler_port=wan_port, num_servers=1, num_members=1)
    lan = _core.Domain(scheduler_host="127.0.0.1", scheduler_port=lan_port, num_servers=1, num_members=1)
    domains = {
        "global_scheduler": [("scheduler", {"wan": wan})],
        "global_server": [("global_server", {"wan": wan, "is_central": True})],
        "party": [("local_server", {"lan": lan, "wan": wan, "party": "a"}), ("scheduler", {"lan": lan, "party": "a"})],
        "worker": [("worker", {"lan": lan, "party": "a"})],
    }
    wanted = [(role, given) for name in order for role, given in domains[name]]
    nodes = [(role, _core.Node(role=role, join_s=20, **given)) for role, given in wanted]
    errors = []

    def live(role, node):
        try:
            node.start()
            if role == "worker":
                node.init(["w"], [np.zeros(3, np.float32)])
                node.push_pull(["w"], [np.ones(3, np.float32)], [out := np.zeros(3, np.float32)]).wait()
                assert out[0] == 1
                node.leave()
            else:
                node.serve()
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=live, args=(role, node)) for role, node in nodes]
    for thread in threads:
        thread.start()
        time.sleep(0.03)
    for thread in threads:
        thread.join(30)
    for _, node in nodes:
        node.close()
    assert not errors


def test_a_compression_that_contradicts_a_bound_is_refused():
    with LocalCluster([1], settings={"compression.lan": False}) as cluster, pytest.raises(ConfigError, match="lan"):
        cluster.workers[0].set_gradient_compression({"type": "fp16", "lan": True})
