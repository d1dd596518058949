"""Workers that end earlier than others: rounds go on without them, and sums are not rescaled."""

import numpy as np
import pytest

from geomx.kv import Error
from geomx.testing import LocalCluster

SPREAD = {"topology": {"bigarray_bound": 1}, "scheduler": {"fifo": {"part_elements": 4}}}


def rounds(worker, count, keys=("k",)):
    outs = [np.zeros(9, np.float32) for _ in keys]
    seen = []
    for _ in range(count):
        worker.push_pull(list(keys), [np.full(9, worker.global_rank + 1, np.float32) for _ in keys], outs)
        seen.append([float(out[0]) for out in outs])
        assert all((out == out[0]).all() for out in outs)
    return seen


@pytest.mark.parametrize(
    "counts", [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [3, 0, 0, 3, 1], [0, 0, 3, 0, 0], [2, 2, 2, 4, 4]]
)
@pytest.mark.parametrize(
    "shape",
    [
        {"parties": [2, 2, 1]},
        {"parties": [2, 2, 1], "flat": True},
        {"parties": [2, 1], "central_workers": 2, "central_trains": True},
    ],
    ids=["two tiers", "flat", "central"],
)
def test_uneven_rounds(shape, counts):
    def work(worker):
        worker.init("k", np.zeros(9, np.float32))
        seen = rounds(worker, counts[worker.global_rank])
        worker.leave()
        return [values[0] for values in seen]

    with LocalCluster(global_servers=2, config=SPREAD, **shape) as cluster:
        results = cluster.run(work)
    for rank, seen in enumerate(results):
        expected = [sum(r + 1 for r in range(5) if counts[r] > step) for step in range(counts[rank])]
        assert seen == expected


def test_each_key_has_rounds_of_its_own():
    def work(worker):
        worker.init(["a", "b"], [np.zeros(9, np.float32)] * 2)
        first = rounds(worker, 2, ["a"]) + rounds(worker, 1 + worker.global_rank, ["b"])
        worker.leave()
        return [v for values in first for v in values]

    with LocalCluster([1, 1, 1], config=SPREAD) as cluster:
        assert cluster.run(work) == [[6, 6, 6], [6, 6, 6, 5], [6, 6, 6, 5, 3]]


def test_who_has_left_can_not_push():
    def work(worker):
        worker.push_pull("k", np.ones(3, np.float32))
        worker.leave()
        with pytest.raises(Error, match='push of key "k"|has left|closed'):
            worker.push("k", np.ones(3, np.float32))

    with LocalCluster([1, 1]) as cluster:
        cluster.run(work)


def test_the_authority_may_leave_without_a_push():
    def work(worker):
        worker.init("k", np.zeros(9, np.float32))
        if worker.global_rank == 0:
            return worker.leave()
        return rounds(worker, 2)

    with LocalCluster([1, 2], global_servers=2, config=SPREAD) as cluster:
        assert cluster.run(work) == [None, [[5], [5]], [[5], [5]]]


def test_an_exception_of_one_ends_the_run_for_all():
    def work(worker):
        if worker.global_rank == 2:
            worker.fail("ValueError: no more data")
            return "failed"
        with pytest.raises(Error, match="worker 0 of party party1: ValueError: no more data"):
            rounds(worker, 1)
        return "heard"

    with pytest.raises(Error, match="no more data"):  # noqa: SIM117
        with LocalCluster([2, 1]) as cluster:
            assert cluster.run(work) == ["heard", "heard", "failed"]
