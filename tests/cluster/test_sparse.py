"""bsc and mpq in whole clusters: what workers get, that it is the same everywhere, and that nothing is lost."""

import dataclasses

import numpy as np
import pytest

from geomx import _core
from geomx.testing import LocalCluster

pytest.importorskip("geomx_bsc", reason="the plugin isn't installed: pip install plugins/bsc")

ROUNDS = 30


def trained(cluster, shapes, rounds=ROUNDS, dtype="float32"):
    """Each worker pushes gradients of its own; the results are what it got, by key, added up, and what it gave."""

    def work(worker):
        keys = list(range(len(shapes)))
        seed = cluster.workers.index(worker)
        given = [np.zeros(shape) for shape in shapes]
        got = [np.zeros(shape) for shape in shapes]
        last = [np.zeros(shape, dtype) for shape in shapes]
        worker.init(keys, last)
        for number in range(rounds):
            random = np.random.default_rng((seed, number))
            gradients = [random.standard_normal(shape).astype(dtype) for shape in shapes]
            worker.push(keys, gradients)
            worker.pull(keys, last)
            for i in keys:
                given[i] += gradients[i]
                got[i] += last[i]
        return given, got, last

    return cluster.run(work)


@pytest.mark.parametrize(("parties", "servers", "flat"), [([2, 1], 1, False), ([1, 1, 1], 2, False), ([1, 1], 2, True)])
def test_all_workers_get_the_same_and_a_ratio_of_1_is_exact(parties, servers, flat):
    config = {"compression": {"name": "bsc", "ratio": 1.0, "size_lower_bound": 10},
              "topology": {"bigarray_bound": 500}}  # fmt: skip
    with LocalCluster(parties, global_servers=servers, flat=flat, config=config) as cluster:
        results = trained(cluster, [(40, 30), (7,), (11,), (0,)])
    sums = [sum(given[i] for given, _, _ in results) for i in range(4)]
    for _, got, last in results:
        for i, total in enumerate(sums):
            np.testing.assert_allclose(got[i], total, rtol=1e-4, atol=1e-3)
            np.testing.assert_array_equal(last[i], results[0][2][i])


@pytest.mark.parametrize("bits", [32, 16, 8])
def test_little_travels_and_what_stays_is_bounded(bits):
    config = {"compression": {"name": "bsc", "ratio": 0.05, "momentum": 0.0, "value_bits": bits}}
    with LocalCluster([1, 1], config=config) as cluster:
        results = trained(cluster, [(100, 50)], rounds=100)
        sent = cluster.counters("local_server")["wan.up_payload_bytes"]
    assert sent < 2 * 100 * 250 * (bits / 8 + 1)
    (_, got, _), total = results[0], sum(given[0] for given, _, _ in results)
    kept = total - got[0]
    assert np.abs(kept).max() < 15 * np.sqrt(2)  # an element waits at most until it is among the largest
    assert np.corrcoef(total.ravel(), got[0].ravel())[0, 1] > 0.5


def test_with_an_optimizer_on_the_servers_what_weights_have_changed_by_comes_down():
    config = {"compression": {"name": "bsc", "ratio": 0.1, "size_lower_bound": 10}}
    settings = {"optimizer": {"name": "sgd", "learning_rate": 1.0, "momentum": 0.0, "wd": 0.0}}
    with LocalCluster([1, 1], config=config, settings=settings) as cluster:
        results = trained(cluster, [(40,)], rounds=1)
    (_, weights, last), other = results[0], results[1]
    assert np.count_nonzero(weights) == 4
    np.testing.assert_array_equal(last[0], other[2][0])


def test_mixed_sync_trains():
    config = {"compression": {"name": "bsc", "ratio": 0.1, "size_lower_bound": 10}, "sync": {"name": "mixed"}}
    with LocalCluster([1, 1], config=config) as cluster:
        results = trained(cluster, [(40,)], rounds=5)
    assert all(np.isfinite(last[0]).all() for _, _, last in results)


def test_halves_keep_their_residual_in_float32():
    config = {"compression": {"name": "bsc", "ratio": 0.5, "momentum": 0.0, "size_lower_bound": 10}}
    with LocalCluster([1, 1], config=config) as cluster:
        results = trained(cluster, [(64,)], rounds=20, dtype="float16")
    total = sum(given[0] for given, _, _ in results)
    assert np.abs(total - results[0][1][0]).max() < 6


def test_nan_is_counted_and_does_not_spread():
    config = {"compression": {"name": "bsc", "ratio": 0.5, "size_lower_bound": 10}}
    with LocalCluster([1, 1], config=config) as cluster:

        def work(worker):
            out = np.zeros(20, np.float32)
            worker.init("w", out)
            for number in range(4):
                values = np.ones(20, np.float32)
                values[3] = np.nan if number == 0 else 1
                worker.push("w", values)
                worker.pull("w", out)
                assert np.isfinite(out).all()

        cluster.run(work)
        assert cluster.counters()["bsc.not_finite"] == 2


def test_large_integers_are_refused_in_a_sentence():
    def work(worker):
        worker.init("w", np.zeros(20, np.int32))
        worker.push("w", np.zeros(20, np.int32))
        worker.pull("w", np.zeros(20, np.int32))

    cluster = LocalCluster([1, 1], config={"compression": {"name": "bsc", "size_lower_bound": 10}}).start()
    with pytest.raises(_core.Error, match="compression=bsc: .*has int32, allowed are float32"):
        cluster.run(work)
    cluster.close()


def test_a_bound_that_differs_between_nodes_is_refused_with_both_names():
    def change(spec):
        other = '{"name":"bsc","size_lower_bound":500}'
        return dataclasses.replace(spec, settings={**spec.settings, "compression": other}) if spec.rank == 1 else spec

    config = {"compression": {"name": "bsc", "size_lower_bound": 1000}}
    both = "compression: the scheduler of party party0 has .*1000.*, worker 1 of party party0 has .*500"
    with pytest.raises(_core.Error, match=both):
        LocalCluster([2], config=config, change=change, deadline_s=10).start()


def test_small_tensors_that_are_ready_leave_together():
    keys, length, rounds = list(range(300)), 10, 5
    with LocalCluster([1, 1], config={"compression": {"name": "bsc"}}) as cluster:

        def work(worker):
            out = [np.zeros(length, np.float32) for _ in keys]
            worker.init(keys, out)
            worker.pull(keys, out)
            worker.barrier(world=True)
            before = cluster.counters("local_server", "global_server")["wan.messages"]
            for _ in range(rounds):
                worker.push_pull(keys, [np.ones(length, np.float32) for _ in keys], out)
            return before

        before = max(cluster.run(work))
        sent = cluster.counters("local_server", "global_server")["wan.messages"] - before
    assert sent < rounds * 4 * len(keys) / 3  # two parties, both ways
