"""transport=dgt in whole clusters, with everything that it must go with. Nothing is lost on loopback, so sums are what
they are without it; what a late part or a coarse one leaves behind comes with a later round."""

import dataclasses
from contextlib import nullcontext

import numpy as np
import pytest

from geomx import _core
from geomx.config import judge, load
from geomx.errors import Forbidden
from geomx.testing import LocalCluster

pytest.importorskip("geomx_dgt", reason="the plugin isn't installed: pip install plugins/dgt")

LENGTH = 3000
PATIENT = {"deadline_ms": 5000.0, "wait_ms": 5000.0}


def summed(cluster, rounds=5, dtype="float32", length=LENGTH):
    """Each worker pushes small whole numbers; the results are what it gave and what it got, added up."""

    def work(worker):
        seed = cluster.workers.index(worker)
        out = np.zeros(length, dtype)
        given, got = np.zeros(length), np.zeros(length)
        worker.init("k", out)
        for number in range(rounds):
            gradient = np.random.default_rng((seed, number)).integers(-8, 9, length).astype(dtype)
            worker.report("loss", 1.0 / (number + 1))
            worker.push_pull("k", gradient, out)
            given += gradient
            got += out
        return given, got

    return cluster.run(work)


def transport(**options):
    return {"name": "dgt", "k": 0.5, "block_bytes": 256, **PATIENT, **options}


@pytest.mark.parametrize("mode", ["udp", "tcp"])
@pytest.mark.parametrize("compression", ["none", "fp16", "bsc", "mpq"])
def test_every_compression(compression, mode):
    pytest.importorskip(f"geomx_{compression}" if compression != "none" else "geomx")
    exact = {"ratio": 1.0} if compression in ("bsc", "mpq") else {}
    config = {"transport": transport(mode=mode), "compression": {"name": compression, **exact}}
    with LocalCluster([1, 1], config=config) as cluster:
        results = summed(cluster)
        assert cluster.counters("local_server")["dgt.rounds"] > 0
    total = sum(given for given, _ in results)
    for _, got in results:
        np.testing.assert_allclose(got, total, atol=1e-3)


def test_streams_of_their_own_carry_what_may_be_missing():
    with LocalCluster([1, 1], config={"transport": transport(mode="tcp")}) as cluster:
        results = summed(cluster, rounds=20)
        counted = cluster.counters("local_server")
        assert cluster.counters("global_server")["wan.missing_parts"] == 0
    assert counted["streams.messages"] > 20  # of the first rounds some went before the streams were there
    for _, got in results:
        np.testing.assert_array_equal(got, sum(given for given, _ in results))


def test_what_has_not_left_a_stream_in_time_goes_into_the_next_round(tmp_path):
    """A slow link, and hardly any patience: half of the parts are droppable, and not all of them get out."""
    file = str(tmp_path / "links")
    _core.make_wan_links(file, 2)
    config = {"transport": transport(mode="tcp", k=0.2, wait_ms=150.0, deadline_ms=10.0),
              "network": {"rate_mbit": 4.0, "delay_ms": 1.0}}  # fmt: skip
    with LocalCluster([1], config=config, change=lambda spec: dataclasses.replace(spec, links=file)) as cluster:
        results = summed(cluster, rounds=12, length=30_000)
        counted, added = cluster.counters("local_server"), cluster.counters("global_server")
    assert 0 < counted["wan.dropped_parts"] <= added["wan.missing_parts"] < counted["wan.droppable_parts"]
    assert counted["wan.lost_reliable_parts"] == 0
    assert added["wan.added_parts"] == counted["wan.applied_parts"]
    ((given, got),) = results
    assert np.abs(given - got).max() <= 8 * 12
    assert np.corrcoef(given, got)[0, 1] > 0.9


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_several_servers_and_half_types(dtype):
    config = {"transport": transport(), "topology": {"bigarray_bound": 100}}
    with LocalCluster([2, 1], global_servers=2, config=config) as cluster:
        results = summed(cluster, dtype=dtype)
    for _, got in results:
        np.testing.assert_array_equal(got, sum(given for given, _ in results))


@pytest.mark.parametrize("flat", [True, False])
def test_an_adaptive_k_follows_what_workers_report(flat):
    config = {"transport": transport(adaptive_k=True, k=0.8, k_min=0.2)}
    with LocalCluster([1, 1], flat=flat, config=config) as cluster:
        results = summed(cluster, rounds=10)
        counted = cluster.counters("worker" if flat else "local_server")
    for _, got in results:
        np.testing.assert_array_equal(got, sum(given for given, _ in results))
    assert 0.2 <= counted["dgt.k_sum"] / counted["dgt.rounds"] < 0.7


@pytest.mark.parametrize("mode", ["udp", "tcp", "tcp4bit"])
def test_mixed_sync(mode):
    config = {"transport": transport(mode=mode), "sync": {"name": "mixed", "staleness": 0}}
    settings = {"optimizer": {"name": "sgd", "learning_rate": 1.0}}

    def work(worker):
        out = np.zeros(LENGTH, np.float32)
        worker.init("k", out)
        for _ in range(5):
            worker.push_pull("k", np.ones(LENGTH, np.float32), out)
        worker.barrier(world=True)
        worker.push_pull("k", np.zeros(LENGTH, np.float32), out)
        return out

    with LocalCluster([1, 1], config=config, settings=settings) as cluster:
        for weights in cluster.run(work):
            np.testing.assert_array_equal(weights, np.full(LENGTH, -10, np.float32))


def test_four_bits_lose_nothing_for_good():
    with LocalCluster([1, 1], config={"transport": transport(mode="tcp4bit")}) as cluster:
        results = summed(cluster, rounds=40)
        counted = cluster.counters("local_server")
    assert counted["wan.up_payload_bytes.DGT4"] > 0
    total = sum(given for given, _ in results)
    # What is missing is one round's rounding: at most half a step of 8/7 for each party.
    for _, got in results:
        assert np.abs(got - total).max() < 2 * 8
    assert np.abs(results[0][1] - total).mean() < 1.5


def test_four_bits_are_refused_where_parts_merge_on_their_way():
    pytest.importorskip("geomx_tsengine")
    for mode, words in (("udp", ""), ("tcp", ""), ("tcp4bit", "scheduler=tsengine does not go with transport=dgt")):
        config = load({"transport": transport(mode=mode), "scheduler": {"tsengine": {}, "p3": {}}})
        with pytest.raises(Forbidden, match=words) if words else nullcontext():
            judge(config)


def test_loss_on_shaped_links_is_refused_with_modes_that_would_not_feel_it():
    for mode in ("tcp", "tcp4bit"):
        with pytest.raises(Forbidden, match="use launcher=netns, a transport with datagrams"):
            judge(load({"transport": transport(mode=mode), "network": {"name": "none", "loss": 0.01}}))
    judge(load({"transport": transport(), "network": {"name": "none", "loss": 0.01}}))


@pytest.mark.parametrize("compression", ["none", "fp16", "bsc", "mpq"])
def test_four_bits_with_every_compression_over_several_servers(compression):
    exact = {"ratio": 1.0} if compression in ("bsc", "mpq") else {}
    config = {
        "transport": transport(mode="tcp4bit"),
        "compression": {"name": compression, **exact},
        "topology": {"bigarray_bound": 1000},
    }
    with LocalCluster([1, 1], global_servers=2, config=config) as cluster:
        results = summed(cluster, rounds=15)
        counted, added = cluster.counters("local_server"), cluster.counters("global_server")
    total = sum(given for given, _ in results)
    for _, got in results:
        np.testing.assert_array_equal(got, results[0][1])
        assert np.abs(got - total).max() < 2 * 8
    assert added["wan.added_parts"] == counted["wan.applied_parts"] > 0


@pytest.mark.parametrize("ranking", ["contribution", "random"])
def test_what_is_withheld_comes_later(ranking):
    """Half of all parts aren't sent in their own round, and nothing is missing for good."""
    config = {"transport": transport(withhold=True, deadline_ms=1.0, ranking=ranking)}
    with LocalCluster([1, 1], config=config) as cluster:
        results = summed(cluster, rounds=30)
        counted = cluster.counters("local_server")
        missing = cluster.counters("global_server")["wan.missing_parts"]
    assert missing == counted["wan.droppable_parts"] > 0
    given = sum(given for given, _ in results)
    for _, got in results:
        assert np.abs(given - got).max() < 2 * 8 * 8  # it waits until it is among the largest half
        assert np.corrcoef(given, got)[0, 1] > 0.9
