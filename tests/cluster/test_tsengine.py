"""scheduler=tsengine in whole clusters, with everything that it must go with: the result is the star's."""

import dataclasses

import numpy as np
import pytest

from geomx import _core
from geomx.config import judge, load
from geomx.errors import ConfigError
from geomx.testing import LocalCluster

pytest.importorskip("geomx_tsengine", reason="the plugin isn't installed: pip install plugins/tsengine")

LENGTH = 3000


def summed(cluster, rounds=4, dtype="float32", length=LENGTH, rounds_of=None):
    """Each worker pushes small whole numbers; the results are what it gave and what it got, each added up."""

    def work(worker):
        seed = cluster.workers.index(worker)
        out = np.zeros(length, dtype)
        given, got = np.zeros(length), np.zeros(length)
        worker.init("k", out)
        for number in range(rounds_of(seed) if rounds_of else rounds):
            gradient = np.random.default_rng((seed, number)).integers(-8, 9, length).astype(dtype)
            worker.push_pull("k", gradient, out)
            given += gradient
            got += out
        return given, got

    def observe(worker):
        worker.init("k", np.zeros(length, dtype))
        worker.push("k", np.zeros(length, dtype))  # seals

    master = observe if cluster.master else None
    return cluster.run(work, master)[: len(cluster.workers)]


def config(part_elements=256, **more):
    """Small parts, so that many are under way at once."""
    options = more.pop("options", {})
    return {"scheduler": {"fifo": {"part_elements": part_elements}, "tsengine": options}, **more}


def check(results, atol=0.0):
    total = sum(given for given, _ in results)
    for _, got in results:
        np.testing.assert_allclose(got, total, atol=atol)


def test_the_sum_is_the_stars_and_the_root_hears_of_few():
    with LocalCluster([1, 1, 1, 1], config=config()) as cluster:
        check(summed(cluster))
        counted = cluster.counters("global_server")
    parts = 4 * -(-LENGTH // 256)
    assert counted["tsengine.wan.merged"] > parts  # of four contributions up to three are merged on their way
    assert counted["tsengine.wan.relayed"] > parts


@pytest.mark.parametrize("compression", ["none", "fp16", "bsc", "mpq"])
def test_every_compression(compression):
    pytest.importorskip(f"geomx_{compression}" if compression != "none" else "geomx")
    exact = {"ratio": 1.0} if compression in ("bsc", "mpq") else {}
    with LocalCluster([1, 1, 1], config=config(compression={"name": compression, **exact})) as cluster:
        check(summed(cluster), atol=1e-3)


def test_several_servers_and_central_workers():
    given = config(topology={"bigarray_bound": 100})
    with LocalCluster([2, 1, 1], global_servers=2, central_workers=1, central_trains=True, config=given) as cluster:
        check(summed(cluster))


def test_in_both_tiers_with_a_master_that_observes():
    given = config(options={"inter": True, "intra": True})
    with LocalCluster([3, 2], central_workers=1, config=given) as cluster:
        check(summed(cluster))
        assert cluster.counters("local_server")["tsengine.lan.merged"] > 0


def test_flat_and_half_types():
    with LocalCluster([2, 2], flat=True, config=config()) as cluster:
        check(summed(cluster, dtype="float16"), atol=0.1)


def test_with_p3():
    pytest.importorskip("geomx_p3")
    given = {"scheduler": {"p3": {"part_elements": 300}, "tsengine": {"inter": True, "intra": True}}}
    with LocalCluster([2, 1, 1], config=given) as cluster:
        check(summed(cluster))
        assert cluster.counters("global_server")["tsengine.wan.merged"] > 0


def test_with_dgt():
    pytest.importorskip("geomx_dgt")
    patient = {"name": "dgt", "k": 0.5, "deadline_ms": 5000.0, "wait_ms": 5000.0}
    for mode in ("udp", "tcp"):
        with LocalCluster([1, 1, 1], config=config(transport={**patient, "mode": mode})) as cluster:
            check(summed(cluster), atol=1e-3)


def test_whoever_leaves_early_is_not_waited_for():
    given = config(options={"hold_ms": 1000.0, "bypass_ms": 2000.0})  # one who leaves may have been chosen as a relay
    with LocalCluster([1, 1, 1], config=given) as cluster:

        def work(worker):
            seed = cluster.workers.index(worker)
            out = np.zeros(LENGTH, "float32")
            worker.init("k", out)
            got = []
            for _ in range(2 + seed):
                worker.push_pull("k", np.full(LENGTH, seed + 1, "float32"), out)
                got.append(out[0])
            worker.leave()
            return got

        assert cluster.run(work) == [[6, 6], [6, 6, 5], [6, 6, 5, 3]]


def test_all_at_random_and_nobody_reachable():
    for unreachable in (False, True):
        parties = [{"name": f"party{i}", "workers": 1, "reachable": not unreachable} for i in range(4)]
        given = config(options={"max_greed_rate": 0.0}, topology={"parties": parties})
        with LocalCluster([1] * 4, config=given) as cluster:
            check(summed(cluster))
            counted = cluster.counters("global_server")
        assert ("tsengine.wan.merged" in counted) == (not unreachable)


def test_an_unreachable_party_is_never_a_receiver():
    parties = [{"name": f"party{i}", "workers": 1, "reachable": i != 0} for i in range(3)]
    with LocalCluster([1] * 3, config=config(topology={"parties": parties})) as cluster:
        check(summed(cluster))
        for name in ("party1.server", "party2.server"):
            to = {row[1] for row in cluster.nodes[name].ledger()["sent"] if row[0] == "wan" and row[2] == "k"}
            assert not any("party0" in who for who in to), to


def test_a_broken_link_between_two_parties_is_gone_around(tmp_path):
    file = str(tmp_path / "links")
    _core.make_wan_links(file, 4)
    # What goes from one to the other takes a minute; the rest is quick.
    network = {"delay_ms": 1.0, "pairs": {"party0": {"party1": {"delay_ms": 60_000.0}}}}
    given = config(part_elements=1000, options={"hold_ms": 200.0, "bypass_ms": 400.0}, network=network)
    with LocalCluster([1, 1, 1], config=given, change=lambda s: dataclasses.replace(s, links=file)) as cluster:
        check(summed(cluster, rounds=3))
        assert cluster.counters("local_server")["tsengine.wan.bypassed"] > 0


def test_mixed_sync_is_refused_with_a_combination_that_works():
    with pytest.raises(ConfigError, match="scheduler=tsengine does not go with sync=mixed: .*use sync=fsa"):
        judge(load({"scheduler": {"tsengine": {}}, "sync": {"name": "mixed"}}))
