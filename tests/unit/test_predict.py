"""Time of a round on the WAN from links and bytes: arithmetic."""

import pytest

from geomx.config import load
from geomx.predict import _duration, _wire_s

MB = 1e6


def wire(network, up=1.25 * MB, down=2.5 * MB, last=1.0, **topology):
    given = {"name": "shape", "rate_mbit": 100.0, "delay_ms": 25.0, **network}
    config = load({"network": given, "topology": {"name": "hips", "parties": 2, **topology}})
    return _wire_s(config, up, down, last)


# TCP/IP's headers, and acknowledgements of the other way's bytes: twice as many as this way's, or half
UP, DOWN = 1 + 52 / 1448 + 2 * 26 / 1448, 1 + 52 / 1448 + 26 / 1448 / 2


def test_the_central_link_carries_all_parties():
    """100 Mbit/s are 12.5 MB/s: two parties' 1.25 MB up, then their 2.5 MB down, and 50 ms."""
    assert wire({}) == pytest.approx(0.2 * UP + 0.4 * DOWN + 0.05)
    assert wire({}, parties=4) == pytest.approx(0.4 * UP + 0.8 * DOWN + 0.05)


def test_parts_come_down_while_others_go_up():
    assert wire({}, last=0.1) == pytest.approx(0.02 * UP + 0.4 * DOWN + 0.05)
    assert wire({}, up=2.5 * MB, down=1.25 * MB, last=0.1) == pytest.approx(0.4 * DOWN + 0.02 * UP + 0.05)


def test_a_slow_party_is_waited_for():
    assert wire({"access": {"party1": {"rate_mbit": 10.0}}}) == pytest.approx(UP + 2 * DOWN + 0.05)


def test_in_a_flat_topology_a_party_sends_for_each_worker():
    slow_parties = {"rate_mbit": 10.0, "access": {"central": {"rate_mbit": 1000.0}}}
    assert wire(slow_parties, name="flat", workers=3) == pytest.approx(3 * UP + 6 * DOWN + 0.05)


def test_without_limits_it_takes_no_time():
    assert wire({"rate_mbit": 0.0, "delay_ms": 0.0}) == 0


def lossy(congestion, transport="zmq", global_servers=1, **network):
    """Of 1.25 MB up and 2.5 MB down, where a tenth is waited for alone."""
    topology = {"name": "hips", "parties": 2}
    if global_servers > 1:
        topology = {"name": "multigps", "parties": 2, "global_servers": global_servers}
    given = {"name": "shape", "rate_mbit": 100.0, "delay_ms": 25.0, "loss": 0.01, **network}
    config = load({"network": given, "topology": topology, "launcher": {"name": "netns", "congestion": congestion},
                   "transport": {"name": transport}})  # fmt: skip
    return _wire_s(config, 1.25 * MB, 2.5 * MB, 0.1)


def test_loss_bounds_a_stream_of_tcp():
    """1,448 bytes x sqrt(1.5 / 0.01) each 50 ms are 355 kB/s, far less than the links' 12.5 MB/s."""
    rate = 1448 * 150**0.5 / 0.05
    assert lossy("cubic") == pytest.approx((0.125 * MB + 2.5 * MB) / rate + 0.05)
    assert lossy("reno") == lossy("cubic")
    assert lossy("cubic", burst=4.0) == pytest.approx((0.125 * MB + 2.5 * MB) / (2 * rate) + 0.05)
    assert lossy("cubic", global_servers=2) == pytest.approx((0.125 * MB + 2.5 * MB) / (2 * rate) + 0.05)


def test_loss_bounds_neither_bbr_nor_datagrams():
    assert lossy("bbr") == wire({}, last=0.1)
    assert lossy("cubic", transport="dgt") == wire({}, last=0.1)


def test_durations_are_said_for_people():
    assert [_duration(s) for s in (0.3, 75, 3700)] == ["0.3 s", "1 min 15 s", "1 h 1 min"]
