"""Pushes and pulls in every order: what a pull gives, and what waits for what."""

import threading
import time

import numpy as np
import pytest

from geomx.kv import Error, Timeout
from geomx.testing import LocalCluster

SPREAD = {"topology": {"bigarray_bound": 1}, "scheduler": {"fifo": {"part_elements": 2}}}
SGD = {"optimizer": {"name": "sgd", "learning_rate": 1.0}}


def ones(value=1.0, n=5):
    return np.full(n, value, np.float32)


def pulled(worker, key, n=5, timeout=None):
    out = np.full(n, -99, np.float32)
    worker.pull(key, out, timeout=timeout)
    assert (out == out[:1]).all()
    return float(out[0]) if n else 0.0


def test_the_first_push_declares_a_key_with_value_zero():
    def work(worker):
        worker.push("k", ones())
        first = pulled(worker, "k")
        worker.push("k", ones(2))
        return first, pulled(worker, "k")

    with LocalCluster([2, 1], global_servers=2, config=SPREAD) as cluster:
        assert cluster.run(work) == [(3, 6)] * 3


def test_a_pull_before_anything_was_pushed_gives_zero_where_a_push_declared_the_key():
    def work(worker):
        worker.barrier(world=True)
        if worker.global_rank == 0:
            worker.push("k", ones())
            worker.barrier(world=True)
            return pulled(worker, "k")
        worker.barrier(world=True)
        before = pulled(worker, "k")
        worker.push("k", ones())
        return before, pulled(worker, "k")

    with LocalCluster([1, 1], config=SPREAD) as cluster:
        assert cluster.run(work) == [2, (0, 2)]


def test_a_server_optimizer_needs_an_initial_value():
    def work(worker):
        worker.push_pull("k", ones())

    with pytest.raises(Error, match='key "k" has no initial value, which a server optimizer needs; init it first'):  # noqa: SIM117
        with LocalCluster([1], settings=SGD) as cluster:
            cluster.run(work)


def test_a_pull_before_init_waits_for_it():
    pulls = threading.Event()

    def work(worker):
        out = ones(-1)
        if worker.global_rank:
            ticket = worker.node.pull(["k"], [out])
            assert not ticket.done
            pulls.set()
            ticket.wait(10)
        else:
            pulls.wait(10)
            worker.init("k", ones(7))
            worker.pull("k", out)
        return out.tolist()

    with LocalCluster([1, 1], global_servers=2, config=SPREAD) as cluster:
        assert cluster.run(work) == [[7] * 5] * 2


def test_a_pull_of_a_key_that_nobody_set_ends_in_a_sentence():
    def work(worker):
        with pytest.raises(Timeout) as e:
            pulled(worker, "typo", timeout=0.2)
        return str(e.value)

    with LocalCluster([1, 1]) as cluster:
        texts = cluster.run(work)
    assert texts[1] == (
        'worker 0 of party party1: pull of key "typo" was not done after 0.2 s; key "typo" is not '
        "known: nobody has declared it by an init or a push"
    )


def test_a_push_that_waits_for_the_authority_names_it():
    def work(worker):
        worker.init("k", ones())
        if worker.global_rank == 0:
            return ""
        with pytest.raises(Timeout) as declared:
            worker.push("k", ones(), timeout=0.2)
        with pytest.raises(Timeout) as unknown:
            worker.init("other", ones(), timeout=0.2)
        return str(declared.value), str(unknown.value)

    with LocalCluster([1, 1]) as cluster:
        declared, unknown = cluster.run(work)[1]
        assert "for the first push or the leave of worker 0 of party party0, which ends configuring" in declared
        assert "worker 0 of party party0" in unknown
        cluster.run(lambda w: w.global_rank == 0 and (w.init("other", ones()), w.push("k", ones())))


def test_a_round_that_waits_names_who_is_missing():
    def work(worker):
        worker.init("k", ones())
        if worker.global_rank == 2:
            worker.barrier(world=True)
            worker.push("k", ones())
            return ""
        worker.push("k", ones())
        with pytest.raises(Timeout) as e:
            pulled(worker, "k", timeout=4)
        worker.barrier(world=True)
        return str(e.value)

    with LocalCluster([2, 1]) as cluster:
        texts = cluster.run(work)
    for text in texts[:2]:
        assert "for local server of party party1" in text or "worker 0 of party party1" in text, text


def test_push_push_pull_gives_the_second_rounds_value():
    def work(worker):
        worker.init("k", ones(0))
        tickets = [worker.node.push(["k"], [ones(v)]) for v in (1, 10, 100)]
        value = pulled(worker, "k")
        for ticket in tickets:
            ticket.wait(5)
        return value

    with LocalCluster([2, 1], global_servers=2, config=SPREAD) as cluster:
        assert cluster.run(work) == [300] * 3
    with LocalCluster([2, 1], global_servers=2, config=SPREAD, settings=SGD) as cluster:
        assert cluster.run(work) == [-333] * 3


def test_pulls_again_give_the_same_value_and_pulls_in_between_their_rounds():
    def work(worker):
        worker.init("k", ones(4))
        seen = [pulled(worker, "k"), pulled(worker, "k")]
        for step in (1, 2):
            worker.push("k", ones(step))
            seen += [pulled(worker, "k"), pulled(worker, "k")]
        return seen

    with LocalCluster([2, 1], config=SPREAD) as cluster:
        assert cluster.run(work) == [[4, 4, 3, 3, 6, 6]] * 3


def test_pulling_the_weight_after_pushing_the_gradient():
    """MXNet's loops: push(i, grad), pull(i, weight) into another array than the one that was pushed."""

    def work(worker):
        weight, grad = ones(3), ones()
        worker.init(0, weight)
        worker.pull(0, weight)
        for _ in range(3):
            worker.push(0, grad)
            worker.pull(0, weight)
        assert (grad == 1).all()
        return weight.tolist()

    with LocalCluster([2, 2], settings=SGD) as cluster:
        assert cluster.run(work) == [[3 - 3 * 4] * 5] * 4


def test_pulling_into_the_gradient_that_was_pushed():
    def work(worker):
        grad = ones(worker.global_rank + 1)
        worker.push(0, grad)
        worker.pull(0, grad)
        return grad.tolist()

    with LocalCluster([2, 1]) as cluster:
        assert cluster.run(work) == [[6] * 5] * 3


def test_keys_run_on_by_themselves():
    """Opposite orders on two members don't wait for each other."""

    def work(worker):
        keys = [f"k{i}" for i in range(8)]
        worker.init(keys, [ones(0, 200)] * 8)
        mine = keys if worker.global_rank % 2 else keys[::-1]
        outs = {key: ones(0, 200) for key in keys}
        tickets = []
        for _ in range(4):
            tickets += [worker.node.push([key], [ones(1, 200)]) for key in mine]
        tickets += [worker.node.pull([key], [outs[key]]) for key in mine]
        for ticket in tickets:
            ticket.wait(10)
        return [out.tolist() for out in outs.values()]

    with LocalCluster([2, 2], global_servers=2, config=SPREAD) as cluster:
        assert cluster.run(work) == [[[4] * 200] * 8] * 4


def test_an_observing_master_pulls_the_newest_value_and_contributes_nothing():
    values, turn = [], threading.Barrier(4)

    def work(worker):
        for _ in range(3):
            worker.push_pull("k", ones())
            turn.wait(10)
            turn.wait(10)

    def master(worker):
        worker.init("k", ones(100))
        values.append(pulled(worker, "k"))
        for _ in range(3):
            worker.push("k", ones(1e6))
            turn.wait(10)
            values.append(pulled(worker, "k"))
            values.append(pulled(worker, "k"))
            turn.wait(10)

    with LocalCluster([2, 1], global_servers=2, central_workers=1, config=SPREAD, settings=SGD) as cluster:
        cluster.run(work, master)
    assert values == [100, 97, 97, 94, 94, 91, 91]


def test_the_master_may_pull_when_all_others_have_left():
    def work(worker):
        worker.init("k", ones(-5))
        worker.push_pull("k", ones())
        worker.leave()

    with LocalCluster([2, 1], global_servers=2, central_workers=1, config=SPREAD, settings=SGD) as cluster:
        values = []

        def master(worker):
            worker.init("k", ones(100))
            worker.push("k", ones())  # ends configuring
            out = np.full_like(ones(), 100)
            until = time.monotonic() + 25
            while (out == 100).any() and time.monotonic() < until:  # parts of a round close one by one
                worker.pull("k", out, timeout=5)
                assert np.isin(out, [100, 97]).all()
            values.append(pulled(worker, "k", timeout=5))

        cluster.run(work, master)
        assert values == [97]
        # A key whose value the central party has never seen.
        assert pulled(cluster.master, "k", timeout=5) == 97


@pytest.mark.parametrize("central", [False, True])
def test_the_authoritys_initial_value_is_everybodys(central):
    def work(worker):
        worker.init("k", ones(50 + worker.global_rank))
        return pulled(worker, "k")

    with LocalCluster([2, 1], global_servers=2, central_workers=int(central), config=SPREAD) as cluster:
        if central:
            assert cluster.run(work, lambda w: w.init("k", ones(3))) == [3, 3, 3, None]
        else:
            assert cluster.run(work) == [50] * 3


def test_a_second_init_changes_nothing():
    def work(worker):
        worker.init("k", ones(1))
        worker.init("k", ones(2))
        first = pulled(worker, "k")
        worker.push_pull("k", ones(10))
        worker.init("k", ones(3))
        return first, pulled(worker, "k")

    with LocalCluster([1, 1], config=SPREAD) as cluster:
        assert cluster.run(work) == [(1, 20)] * 2


@pytest.mark.parametrize(
    "other",
    [np.zeros((5, 1), np.float32), np.zeros(6, np.float32), np.zeros(5, np.float16)],
    ids=["shape", "length", "dtype"],
)
def test_declarations_that_differ_say_who_has_what(other):
    def work(worker):
        worker.init("k", ones() if worker.global_rank == 0 else other)
        worker.barrier(world=True)

    with pytest.raises(Error) as e:  # noqa: SIM117
        with LocalCluster([1, 1]) as cluster:
            cluster.run(work)
    text = str(e.value)
    assert 'key "k"' in text
    assert "worker 0 of party party0 has float32 (5,)" in text
    assert f"worker 0 of party party1 has {other.dtype} {other.shape}" in text


def test_a_second_init_of_another_shape_is_refused():
    def work(worker):
        worker.init("k", ones())
        with pytest.raises(Error, match=r"expected float32 \(5,\) as it was declared, but .* gave float32 \(5, 1\)"):
            worker.init("k", np.zeros((5, 1), np.float32))
        with pytest.raises(Error, match=r"gave float32 \(4,\)"):
            worker.push("k", ones(1, 4))
        with pytest.raises(Error, match=r"gave float64 \(5,\)"):
            worker.pull("k", np.zeros(5))

    with LocalCluster([1]) as cluster:
        cluster.run(work)
