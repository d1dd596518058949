"""MixedSync: parties don't wait for each other, workers of one party do."""

import threading

import numpy as np
import pytest

from geomx.kv import Error, Timeout
from geomx.testing import LocalCluster

SPREAD = {"topology": {"bigarray_bound": 1}, "scheduler": {"fifo": {"part_elements": 4}}}


def mixed(staleness):
    return {"sync": {"name": "mixed", "staleness": staleness}}


def sgd(rate=1.0):
    return {"name": "sgd", "learning_rate": rate}


def cluster_of(parties, staleness=0, optimizer=None, **more):
    settings = {**mixed(staleness), "optimizer": optimizer or sgd()}
    return LocalCluster(parties, config=SPREAD, settings=settings, **more)


def step(worker, gradient=1.0, timeout=None):
    out = np.zeros(9, np.float32)
    worker.push("k", np.full(9, gradient, np.float32))
    worker.pull("k", out, timeout=timeout)
    return float(out[0])


def begun(worker, value=0.0):
    worker.init("k", np.full(9, value, np.float32))
    out = np.zeros(9, np.float32)
    worker.pull("k", out)
    worker.barrier(world=True)
    return float(out[0])


@pytest.mark.parametrize("flat", [False, True])
def test_parties_do_not_wait_for_each_other(flat):
    """One does ten steps while the other does none; then the other's step sees all of them."""
    done = threading.Event()

    def work(worker):
        begun(worker)
        if worker.global_rank == 1:
            done.wait(10)
            return [step(worker)]
        seen = [step(worker) for _ in range(10)]
        done.set()
        return seen

    with cluster_of([1, 1], flat=flat, global_servers=2) as cluster:
        assert cluster.run(work) == [[-float(i) for i in range(1, 11)], [-11.0]]


def test_workers_of_a_party_wait_for_each_other():
    def work(worker):
        begun(worker)
        if worker.global_rank == 1:
            return step(worker, 10)
        worker.push("k", np.ones(9, np.float32))
        out = np.zeros(9, np.float32)
        worker.pull("k", out)
        return float(out[0])

    with cluster_of([2]) as cluster:
        assert cluster.run(work) == [-11, -11]


def test_the_sum_of_all_steps_arrives():
    """Updates commute with plain sgd: after everybody's steps the weights are known, whatever the order was."""

    def work(worker):
        begun(worker)
        for i in range(20):
            step(worker, worker.global_rank + i)
        worker.barrier(world=True)
        out = np.zeros(9, np.float32)
        worker.node.push(["k"], [np.zeros(9, np.float32)]).wait()
        worker.pull("k", out)
        worker.barrier(world=True)
        return float(out[0])

    with cluster_of([2, 1, 3], global_servers=3) as cluster:
        assert cluster.run(work) == [-sum(20 * rank + 190 for rank in range(6))] * 6


@pytest.mark.parametrize("staleness", [1, 3])
def test_nobody_is_further_ahead_than_the_bound(staleness):
    reached = threading.Event()

    def work(worker):
        begun(worker)
        if worker.global_rank == 0:
            for _ in range(staleness):
                step(worker, timeout=5)
            worker.push("k", np.ones(9, np.float32))
            out = np.zeros(9, np.float32)
            with pytest.raises(Timeout):
                worker.pull("k", out, timeout=0.2)
            reached.set()
            worker.pull("k", out, timeout=5)  # let on by the other's first step
            for _ in range(5):
                worker.push("k", np.ones(9, np.float32))
            return
        assert reached.wait(10)
        for _ in range(6):
            step(worker, timeout=5)
        return

    with cluster_of([1, 1], staleness) as cluster:
        cluster.run(work)


def test_fast_and_slow_parties_stay_within_the_bound_all_the_time():
    steps, lock, furthest = [0, 0, 0], threading.Lock(), []

    def work(worker):
        begun(worker)
        pause = threading.Event()
        for _ in range(12):
            step(worker, timeout=10)
            with lock:
                steps[worker.global_rank] += 1
                # What another has had answered it may not have noted yet: one more than the bound.
                furthest.append(max(steps) - min(steps))
            pause.wait(0.004 * worker.global_rank)

    with cluster_of([1, 1, 1], 2) as cluster:
        cluster.run(work)
    assert max(furthest) <= 3
    assert steps == [12] * 3


def test_who_has_left_does_not_hold_the_bound():
    def work(worker):
        begun(worker)
        if worker.global_rank == 1:
            step(worker)
            return worker.leave()
        for _ in range(10):
            step(worker, timeout=10)
        return None

    with cluster_of([1, 1], 1) as cluster:
        cluster.run(work)


def dcasgd(weight, backup, gradient, rate, lamda):
    """Zheng et al. 2017, formula 2, in float32 in the order in which the core computes."""
    f = np.float32
    return weight - f(rate) * (gradient + f(lamda) * gradient * gradient * (weight - backup))


def test_each_pusher_is_compensated_by_what_it_was_last_given():
    """A script of turns: who steps when, and with which gradient; equals a numpy reference."""
    random = np.random.default_rng(5)
    turns = [0, *random.integers(0, 3, 29)]  # the authority's first push ends configuring
    gradients = random.normal(size=(30, 9)).astype(np.float32)
    initial = random.normal(size=9).astype(np.float32)
    mine = [threading.Event() for _ in range(31)]
    mine[0].set()

    def work(worker):
        worker.init("k", initial)
        out, seen = np.zeros(9, np.float32), {}
        if worker.global_rank != 2:  # the third has its first value from its first step only
            worker.pull("k", out)
        worker.barrier(world=True)
        for turn, who in enumerate(turns):
            if who != worker.global_rank:
                continue
            assert mine[turn].wait(10)
            worker.push_pull("k", gradients[turn], out)
            seen[turn] = out.copy()
            mine[turn + 1].set()
        return seen

    with cluster_of(
        [1, 1, 1], optimizer={"name": "dcasgd", "learning_rate": 0.1, "lamda": 0.5}, global_servers=2
    ) as cluster:
        results = {turn: value for seen in cluster.run(work) for turn, value in seen.items()}
    weight, backup = initial, [initial] * 3
    for turn, who in enumerate(turns):
        weight = dcasgd(weight, backup[who], gradients[turn], 0.1, 0.5)
        backup[who] = weight
        assert results[turn].tobytes() == weight.tobytes()


def test_a_late_first_pull_is_what_dcasgd_compensates_from():
    done = threading.Event()

    def work(worker):
        worker.init("k", np.full(9, 1, np.float32))
        out = np.zeros(9, np.float32)
        if worker.global_rank == 0:
            for _ in range(3):
                worker.push_pull("k", np.full(9, 1, np.float32), out)
            done.set()
        else:
            done.wait(10)
            worker.pull("k", out)
            before = out.copy()
            worker.push_pull("k", np.full(9, 1, np.float32), out)
            # It was given the newest weights, so there is no delay to compensate.
            np.testing.assert_allclose(out, before - np.float32(0.1), rtol=1e-6)
        return

    with cluster_of([1, 1], optimizer={"name": "dcasgd", "learning_rate": 0.1, "lamda": 10.0}) as cluster:
        cluster.run(work)


@pytest.mark.parametrize("optimizer", [{}, {"optimizer": "none"}])
def test_without_an_optimizer_on_the_servers_it_is_refused(optimizer):
    def work(worker):
        worker.init("k", np.zeros(9, np.float32))
        step(worker)

    with pytest.raises(Error, match="sync=mixed needs an optimizer on the servers: parties that don't wait"):  # noqa: SIM117
        with LocalCluster([1, 1], settings={**mixed(1), **optimizer}) as cluster:
            cluster.run(work)


def test_central_workers_are_a_party_among_the_others():
    def work(worker):
        begun(worker)
        for _ in range(5):
            step(worker)
        worker.barrier(world=True)
        return step(worker, 0)

    with cluster_of([2], central_workers=2, central_trains=True, global_servers=2) as cluster:
        assert cluster.run(work) == [-20] * 4


def test_an_observing_master_sees_the_newest_weights():
    turn = threading.Barrier(3)
    values = []

    def work(worker):
        for _ in range(3):
            if worker.global_rank == 1:  # party0 never steps: its rounds don't keep anything current
                step(worker)
            turn.wait(10)
            turn.wait(10)

    def master(worker):
        worker.init("k", np.full(9, 50, np.float32))
        worker.push("k", np.ones(9, np.float32))
        for _ in range(3):
            turn.wait(10)
            out = np.zeros(9, np.float32)
            worker.pull("k", out)
            values.append(float(out[0]))
            turn.wait(10)

    with cluster_of([1, 1], central_workers=1, global_servers=2) as cluster:
        cluster.run(work, master)
    assert values == [49, 48, 47]
