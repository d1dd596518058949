"""What arrives: sums and weights, whatever the shape of cluster, tensor and key."""

import ml_dtypes
import numpy as np
import pytest

from geomx.testing import LocalCluster

SPREAD = {"topology": {"bigarray_bound": 1}, "scheduler": {"fifo": {"part_elements": 3}}}
SGD = {"optimizer": {"name": "sgd", "learning_rate": 0.5}}
SHAPES = {
    "two tiers": {"parties": [2, 1], "global_servers": 2},
    "flat": {"parties": [2, 1], "flat": True},
    "one party": {"parties": [3]},
    "central workers": {"parties": [1], "central_workers": 2, "central_trains": True, "global_servers": 2},
}


def same(results):
    """The result of all workers, which must be one."""
    for other in results[1:]:
        for mine, theirs in zip(results[0], other, strict=True):
            assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()
    return results[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_without_a_server_optimizer_a_pull_gives_the_rounds_sum(shape):
    def work(worker):
        worker.init(0, np.full(10, 7, np.float32))
        out, seen = np.zeros(10, np.float32), []
        worker.pull(0, out)
        seen.append(out.copy())
        for step in (1, 10):
            worker.push_pull(0, np.arange(10, dtype=np.float32) * step * (worker.global_rank + 1), out)
            seen.append(out.copy())
        return seen

    with LocalCluster(config=SPREAD, **SHAPES[shape]) as cluster:
        initial, first, second = same(cluster.run(work))
    assert initial.tolist() == [7] * 10
    assert first.tolist() == [6 * i for i in range(10)]  # 1 + 2 + 3
    assert second.tolist() == [60 * i for i in range(10)]


@pytest.mark.parametrize("shape", SHAPES)
def test_with_a_server_optimizer_a_pull_gives_the_weights(shape):
    def work(worker):
        worker.init("w", np.arange(10, dtype=np.float32))
        out, seen = np.zeros(10, np.float32), []
        for _ in range(3):
            worker.push("w", np.full(10, worker.global_rank + 1, np.float32))
            worker.pull("w", out)
            seen.append(out.copy())
        return seen

    with LocalCluster(config=SPREAD, settings=SGD, **SHAPES[shape]) as cluster:
        seen = same(cluster.run(work))
    for step, weights in enumerate(seen, 1):
        assert weights.tolist() == [i - 0.5 * 6 * step for i in range(10)]


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("optimizer", [{}, SGD], ids=["sums", "weights"])
def test_every_size(servers, optimizer):
    sizes = [0, 1, 2, 3, servers - 1, 7, 11, 100]

    def work(worker):
        names = [f"k{i}" for i in range(len(sizes))]
        worker.init(names, [np.zeros(n, np.float32) for n in sizes])
        outs = [np.full(n, 9, np.float32) for n in sizes]
        for _ in range(2):
            worker.push_pull(names, [np.ones(n, np.float32) for n in sizes], outs)
        return outs

    with LocalCluster([2, 1], global_servers=servers, config=SPREAD, settings=optimizer) as cluster:
        outs = same(cluster.run(work))
    expected = -3.0 if optimizer else 3.0  # 2 rounds of -0.5 * 3, or one sum
    for n, out in zip(sizes, outs, strict=True):
        assert out.tolist() == [expected] * n


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int32"])
@pytest.mark.parametrize("whole", [False, True], ids=["cut", "whole"])
def test_every_dtype(dtype, whole):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    config = {} if whole else SPREAD

    def work(worker):
        worker.init("k", np.full(11, 2).astype(kind))
        initial, out = np.zeros(11, kind), np.zeros(11, kind)
        worker.pull("k", initial)
        worker.push_pull("k", np.arange(11).astype(kind), out)
        return initial, out

    with LocalCluster([2, 1], global_servers=2, config=config) as cluster:
        initial, out = same(cluster.run(work))
    assert initial.dtype == out.dtype == kind
    assert initial.astype(float).tolist() == [2] * 11
    assert out.astype(float).tolist() == [3 * i for i in range(11)]


def test_halves_are_summed_in_float32():
    """512 and four times a quarter: in halves each quarter would vanish (their distance there is a half)."""

    def work(worker):
        out = np.zeros(1, np.float16)
        worker.push_pull("k", np.full(1, 512 if worker.global_rank == 0 else 0.25, np.float16), out)
        return [out]

    with LocalCluster([5]) as cluster:
        assert same(cluster.run(work))[0] == 513


def test_a_half_with_a_server_optimizer_has_a_master_copy_in_float32():
    """100 steps of 2^-13 from 1: each alone is lost in halves, together they aren't."""

    def work(worker):
        worker.init("k", np.ones(1, np.float16))
        out = np.zeros(1, np.float16)
        for _ in range(100):
            worker.push_pull("k", np.full(1, -(2.0**-13), np.float16), out)
        return [out]

    with LocalCluster([1], settings={"optimizer": {"name": "sgd", "learning_rate": 1.0}}) as cluster:
        assert same(cluster.run(work))[0] == np.float16(1 + 100 * 2.0**-13)


def test_keys_are_the_same_whatever_the_order_of_declaration():
    keys = ["fc1.weight", 3, "3", "#3", 0, 2**40, "ключ", "a" * 200]

    def work(worker):
        mine = keys[worker.global_rank :] + keys[: worker.global_rank]
        for key in mine:
            worker.init(key, np.zeros(2, np.float32))
        outs = {key: np.zeros(2, np.float32) for key in keys}
        for key in reversed(mine):
            worker.push(key, np.full(2, 1 + keys.index(key), np.float32))
        for key in mine:
            worker.pull(key, outs[key])
        return [outs[key] for key in keys]

    with LocalCluster([2, 2], global_servers=2, config=SPREAD) as cluster:
        for i, out in enumerate(same(cluster.run(work))):
            assert out.tolist() == [4 * (i + 1)] * 2


def test_several_devices_are_one_contribution():
    def work(worker):
        outs = [np.zeros(2, np.float32) for _ in range(3)]
        worker.push_pull("k", [np.full(2, i, np.float32) for i in (1, 2, 3)], outs)
        return outs

    with LocalCluster([2]) as cluster:
        assert [o.tolist() for o in same(cluster.run(work))] == [[12, 12]] * 3


def test_priorities_are_accepted_and_change_no_value():
    def work(worker):
        names = [f"k{i}" for i in range(20)]
        outs = [np.zeros(50, np.float32) for _ in names]
        worker.push_pull(names, [np.full(50, i, np.float32) for i in range(20)], outs, priority=[-i for i in range(20)])
        worker.push("k0", np.ones(50, np.float32), priority=-(2**30))
        worker.pull("k0", outs[0], priority=2**30)
        return outs

    with LocalCluster([2, 1], config=SPREAD) as cluster:
        outs = same(cluster.run(work))
    assert outs[0].tolist() == [3] * 50
    assert outs[19].tolist() == [57] * 50


def test_lists_that_are_empty_are_done_at_once():
    def work(worker):
        worker.init([], [])
        worker.push([], [])
        worker.pull([], [])
        worker.push_pull([], [], [])

    with LocalCluster([1], deadline_s=5) as cluster:
        cluster.run(work)
