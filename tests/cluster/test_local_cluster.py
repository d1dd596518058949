"""What LocalCluster itself promises to who writes tests with it."""

import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from geomx import _core
from geomx.testing import LocalCluster


def open_sockets():
    return sum(1 for fd in Path("/proc/self/fd").iterdir() if _is_socket(fd))


def _is_socket(fd):
    try:
        return str(fd.readlink()).startswith("socket:")
    except OSError:
        return False


def os_threads():
    return len(list(Path("/proc/self/task").iterdir()))


def once(worker):
    out = np.zeros(3, np.float32)
    worker.push_pull("k", np.ones(3, np.float32), out)
    return float(out[0])


def test_nothing_is_left_behind():
    with LocalCluster([2, 1], global_servers=2) as cluster:
        cluster.run(once)
    del cluster
    gc.collect()
    before = open_sockets(), os_threads(), threading.active_count()
    for _ in range(3):
        with LocalCluster([2, 1], global_servers=2) as cluster:
            assert cluster.run(once) == [3] * 3
    del cluster
    gc.collect()
    assert (open_sockets(), os_threads(), threading.active_count()) == before


def test_the_first_exception_is_raised_and_ends_the_run():
    def work(worker):
        if worker.global_rank == 1:
            raise KeyError("mine")
        once(worker)

    start = time.monotonic()
    with pytest.raises(KeyError, match="mine"):  # noqa: SIM117
        with LocalCluster([2, 1], deadline_s=50) as cluster:
            cluster.run(work)
    assert time.monotonic() - start < 40  # not by the deadline


def test_a_worker_that_is_not_done_in_time_is_named():
    def work(worker):
        if worker.global_rank == 1:
            once(worker)

    with pytest.raises(TimeoutError, match="run: party1.worker0 not done after 0.3 s"):  # noqa: SIM117
        with LocalCluster([1, 1]) as cluster:
            cluster.deadline_s = 0.3
            cluster.run(work)


def test_run_may_be_called_again_and_workers_may_leave_by_themselves():
    with LocalCluster([2, 1]) as cluster:
        assert cluster.run(once) == [3] * 3
        assert cluster.run(once) == [3] * 3
        cluster.workers[0].leave()


def test_a_failure_of_a_server_is_raised():
    with pytest.raises(_core.Error, match="out of paper"):  # noqa: SIM117
        with LocalCluster([1]) as cluster:
            cluster.nodes["party0.server"].fail("out of paper")


def test_refused_arguments():
    with pytest.raises(ValueError, match="central_workers: 2 given"):
        LocalCluster([1], central_workers=2)
    with pytest.raises(ValueError, match="flat topology"):
        LocalCluster([1], flat=True, central_workers=1)
    with LocalCluster([1]) as cluster, pytest.raises(ValueError, match="no master worker"):
        cluster.run(once, once)


def test_plugins_are_chosen_by_name_as_in_a_run():
    optimizer = {"where": "server", "name": "sgd", "learning_rate": 0.5}
    config = {"compression": {"name": "none"}, "sync": {"name": "fsa", "optimizer": optimizer}}

    def work(worker):
        worker.init("k", np.zeros(3, np.float32))
        return once(worker)

    with LocalCluster([1, 1], config=config) as cluster:
        assert cluster.run(work) == [-1] * 2
        assert cluster.agreed["party0.worker0"]["compression"] == '{"name":"none"}'


def test_counters_are_added_up():
    with LocalCluster([2, 1]) as cluster:
        cluster.run(once)
        assert cluster.counters("worker")["lan.up_payload_bytes"] == 3 * 12
        assert cluster.counters("local_server")["wan.up_payload_bytes"] == 2 * 12
        assert cluster.counters()["wan.down_payload_bytes"] == 2 * 12
