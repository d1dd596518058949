"""network=: what a configuration means in links, and what is refused."""

import pytest

from geomx.config import judge, load
from geomx.config.network import Network
from geomx.config.topology import CENTRAL, Hips
from geomx.errors import ConfigError, Forbidden
from geomx.wan.line import line_of
from geomx.wan.plan import resolve
from geomx.wan.selftest import Expected, Measured, report, text
from geomx.wan.shaper import paths_to_test


def wan(parties=2, **options):
    return resolve(Network(**options), Hips(parties=parties))


def test_one_rate_and_delay_hold_for_all_parties_and_the_central_one():
    found = wan(rate_mbit=100, delay_ms=25)
    assert found.parties == ("party0", "party1", "central")
    assert set(found.up) == set(found.down) == {12.5e6}
    assert found.path("party0", "party1").delay_us == found.path("central", "party0").delay_us == 25_000
    assert found.path("party0", "party0").delay_us == 0
    assert set(found.queue_bytes) == {12.5e6 * 0.05}  # one bandwidth-delay product
    assert not found.is_plain and not found.is_lossy
    assert wan().is_plain


def test_parties_and_pairs_may_differ_and_ways_too():
    found = wan(
        rate_mbit=100,
        delay_ms=10,
        access={"party1": {"rate_mbit": 20, "delay_ms": 5, "loss": 0.5}},
        pairs={
            "party0": {"central": {"delay_ms": 40, "loss": 0.1, "burst": 3}},
            "central": {"party1": {"delay_ms": 1}},
        },
    )
    assert (found.up[1], found.down[1]) == (2.5e6, 2.5e6)
    assert found.path("party0", "central").delay_us == found.path("central", "party0").delay_us == 40_000
    assert found.path("central", "party1").delay_us == found.path("party1", "central").delay_us == 6_000
    assert found.path("party0", "party1").delay_us == 15_000
    assert found.path("party0", "central").burst == 3
    assert found.path("party0", "central").loss == pytest.approx(0.1)
    assert found.rate("party1", "central") == 2.5e6
    one_way = wan(delay_ms=1, pairs={"party0": {"party1": {"delay_ms": 5}}, "party1": {"party0": {"delay_ms": 7}}})
    assert one_way.path("party0", "party1").delay_us == 5_000 and one_way.path("party1", "party0").delay_us == 7_000


def test_up_and_down_may_differ():
    assert wan(rate_mbit=10, down_mbit=50).down[0] == 50e6 / 8
    assert wan(rate_mbit=10, down_mbit=50, access={"central": {"rate_mbit": 20}}).down[2] == 50e6 / 8
    assert wan(rate_mbit=10, access={"central": {"rate_mbit": 20}}).down[2] == 20e6 / 8
    assert wan(rate_mbit=10, access={"central": {"down_mbit": 0}}).down[2] == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"access": {"party7": {}}}, "network.access.party7: no such party; there are: party0, party1, central"),
        ({"access": {"party0": {"rate": 1}}}, "network.access.party0.rate: no such option"),
        ({"access": {"party0": {"loss": 1.5}}}, "network.access.party0.loss: 1.5 given"),
        ({"access": {"party0": 3}}, "network.access.party0: 3 given, allowed is a mapping"),
        ({"pairs": {"party0": {"party0": {}}}}, "nodes of one party don't feel the network"),
        ({"pairs": {"party0": {"x": {}}}}, "network.pairs.party0.x: no such party"),
        ({"access": {"party0": {"shares": [[1, 0.5], [1, 1]]}}}, "network.access.party0.shares: .1, 1. given"),
        ({"access": {"party0": {"shares": [[1, 0]]}}}, r"seconds \(rising\), share of the rates"),
        ({"trace": "/nowhere"}, "network.trace: '/nowhere' can't be read"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(options, told):
    with pytest.raises(ConfigError, match=told):
        wan(**options)


def test_a_trace_is_read_and_its_faults_are_named_by_line(tmp_path):
    file = tmp_path / "trace"
    file.write_text("# seconds Mbit/s ms loss\n0 100 20 0\n2.5, 10, 80, 0.01  # a bad time\n")
    found = wan(trace=str(file))
    assert [(c.at_us, c.bytes_per_s, c.delay_us, c.loss) for c in found.trace] == [
        (0, 12.5e6, 20_000, 0),
        (2_500_000, 1.25e6, 80_000, 0.01),
    ]
    assert found.is_lossy and found.queue_bytes[0] == 12.5e6 * 0.16
    for wrong in ("0 100 20", "0 0 20 0", "0 100 20 1", "x 1 1 0", "0 1 1 0\n0 1 1 0", "", "0 nan 1 0"):
        file.write_text(f"\n{wrong}\n")
        with pytest.raises(ConfigError, match="network.trace: "):
            wan(trace=str(file))


def whole(**groups):
    return load({"task": {"name": "digits"}, **groups})


def test_what_the_shaper_cannot_give_is_refused_with_what_can():
    with pytest.raises(Forbidden, match=r"needs the kernel's TCP; use launcher=netns"):
        judge(whole(network={"name": "mobile", "loss": 0.01}))
    with pytest.raises(Forbidden, match=r"network.priorities=true does not go with launcher=local"):
        judge(whole(network={"delay_ms": 1, "priorities": True}))
    with pytest.raises(Forbidden, match=r"does not go with launcher.control_host"):
        judge(whole(network={"delay_ms": 1}, launcher={"name": "local", "control_host": "10.0.0.1"}))
    judge(whole(network={"delay_ms": 1, "rate_mbit": 10}))


def test_the_self_test_takes_one_path_of_each_kind_and_says_what_is_off():
    found = wan(parties=3, rate_mbit=100, delay_ms=25, access={"party2": {"rate_mbit": 10, "down_mbit": 40}})
    paths = [(a, b) for a, b, _ in paths_to_test(found)]
    assert paths == [("party2", "central"), ("central", "party2"), ("party0", "central")]
    expected = Expected(12.5e6, 25_000, 0.01)
    good = report("a", "b", expected, Measured(12.2e6, 25_900, 0.0095))
    assert good["ok"] and good["rate_mbit"] == [100, pytest.approx(97.6)]
    assert text(good) == "a -> b: 97.6 of 100 Mbit/s, 25.90 of 25 ms one way, 0.0095 of 0.01 lost"
    for wrong in (Measured(11.8e6, 25_000, 0.01), Measured(12.5e6, 27_100, 0.01), Measured(12.5e6, 25_000, 0.02)):
        assert not report("a", "b", expected, wrong)["ok"]
    swaying = Expected(12.5e6, 25_000, 0.0, jitter_us=10_000)
    assert report("a", "b", swaying, Measured(12.5e6, 20_700, None))["ok"]
    assert not report("a", "b", swaying, Measured(12.5e6, 17_000, None))["ok"]
    assert text(report("a", "b", expected, Measured(1e6, 25_000, None))).endswith("NOT AS ASKED FOR")


@pytest.mark.parametrize(
    ("topology", "network", "share"),
    [
        ({"name": "hips", "parties": 2}, {}, 1_250_000 / 2),
        ({"name": "hips", "parties": 8}, {}, 1_250_000 / 8),
        ({"name": "hips", "parties": 2, "global_servers": 2}, {}, 1_250_000 / 4),
        ({"name": "flat", "parties": 2, "workers": 3}, {}, 1_250_000 / 6),
        ({"name": "hips", "parties": 2}, {"access": {"central": {"rate_mbit": 400.0, "down_mbit": 400.0}}}, 1_250_000),
        ({"name": "hips", "parties": 2}, {"queue_ms": 150.0}, (625_000 + 1_875_000) / 2),
        ({"name": "hips", "parties": 2}, {"rate_mbit": 0.0}, 0),
    ],
)
@pytest.mark.parametrize("party", ["party0", CENTRAL])
def test_streams_that_meet_at_a_link_share_what_it_and_its_queue_hold(topology, network, share, party):
    network = {"rate_mbit": 100.0, "delay_ms": 25.0, **network}
    line = line_of(load({"topology": topology, "network": network}), party)
    assert line.share_bytes == pytest.approx(share * 1448 / 1500)
