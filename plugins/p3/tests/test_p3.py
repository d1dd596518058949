"""What is urgent overtakes, on each of its ways; and nothing waits for ever."""

import dataclasses
import threading

import numpy as np
import pytest

pytest.importorskip("geomx_p3", reason="the plugin isn't installed: pip install plugins/p3")

from geomx_p3 import P3

from geomx import _core
from geomx.api import Line
from geomx.config import load
from geomx.plan import part_length
from geomx.testing import LocalCluster

ONE_PART = {"part_elements": 2_000, "credit_kb": 1, "lan_credit_kb": 1}
LARGE, SMALL = 150_000, 2_000  # elements


def shaped(tmp_path, scheduler, parties=(1,), network=None, **options):
    """Over links of 40 Mbit/s and 2 x 2 ms: the large tensor takes 120 ms a way."""
    file = str(tmp_path / "links")
    _core.make_wan_links(file, len(parties) + 1)
    config = {"network": network or {"rate_mbit": 40.0, "delay_ms": 2.0}, "scheduler": scheduler}
    return LocalCluster(parties, config=config, change=lambda spec: dataclasses.replace(spec, links=file), **options)


def overtakes(worker, priorities, declared=("urgent", "bulk")):
    """The bulk is pushed and pulled first; is the urgent one there before it?"""
    values = {"urgent": np.ones(SMALL, np.float32), "bulk": np.ones(LARGE, np.float32)}
    for name in declared:
        worker.init(name, np.zeros_like(values[name]))
    outs = {name: np.zeros_like(value) for name, value in values.items()}
    ended, both = [], threading.Event()

    def end(name, error):  # on the node's thread: this one may be late
        ended.append(error or name)
        if len(ended) == 2:
            both.set()

    for name in ("bulk", "urgent"):
        value, out, how = values[name], outs[name], ("float32", priorities[name])
        worker.node.push_address(name, value.ctypes.data, value.shape, *how, lambda error: None)
        worker.node.pull_address(name, out.ctypes.data, out.shape, *how, lambda error, name=name: end(name, error))
    assert both.wait(40)
    assert sorted(ended) == ["bulk", "urgent"] and all((out == 1).all() for out in outs.values())
    return ended[0] == "urgent"


P3_SHORT = {"p3": {"part_elements": 2_000, "credit_kb": 30}}
FIFO_SHORT = {"fifo": {"part_elements": 2_000}}
EQUAL = {"urgent": 0, "bulk": 0}


def test_the_layer_that_was_declared_first_overtakes(tmp_path):
    with shaped(tmp_path, P3_SHORT) as cluster:
        assert cluster.run(lambda w: overtakes(w, EQUAL)) == [True]


def test_without_p3_it_does_not(tmp_path):
    with shaped(tmp_path, FIFO_SHORT) as cluster:
        assert cluster.run(lambda w: overtakes(w, EQUAL)) == [False]


def test_what_a_push_asks_for_counts_more_and_beyond_its_party(tmp_path):
    declared = ("bulk", "urgent")
    with shaped(tmp_path, P3_SHORT) as cluster:
        assert cluster.run(lambda w: overtakes(w, {"urgent": 7, "bulk": -7}, declared)) == [True]


def test_by_hand_one_node_asks_for_it(tmp_path):
    """As ENABLE_P3=1 on one node: it schedules on all."""
    file = str(tmp_path / "links")
    _core.make_wan_links(file, 2)
    asked = {"scheduler.p3": "true", "scheduler.p3.part_elements": "2000", "scheduler.p3.credit_kb": "30"}

    def change(spec):
        return dataclasses.replace(
            spec, links=file, settings={**spec.settings, **(asked if spec.name == "party0.server" else {})}
        )

    with LocalCluster([1], config={"network": {"rate_mbit": 40.0, "delay_ms": 2.0}}, change=change) as cluster:
        assert cluster.run(lambda w: overtakes(w, EQUAL)) == [True]


@pytest.mark.parametrize("busy", ["up", "down"])
def test_it_overtakes_in_both_directions(tmp_path, busy):
    """Only one direction is slow."""
    slow, fast = 40.0, 4000.0
    network = {"rate_mbit": slow if busy == "up" else fast, "down_mbit": fast if busy == "up" else slow,
               "delay_ms": 2.0, "access": {"central": {"rate_mbit": fast, "down_mbit": fast}}}  # fmt: skip
    with shaped(tmp_path, P3_SHORT, network=network) as cluster:
        assert cluster.run(lambda w: overtakes(w, EQUAL)) == [True]


@pytest.mark.parametrize("compression", ["none", "fp16", "bsc", "mpq"])
@pytest.mark.parametrize("transport", ["zmq", "dgt"])
def test_opposite_orders_with_a_credit_of_one_part(compression, transport):
    """The sums are those of any scheduler; every call returns."""
    pytest.importorskip("geomx_bsc")
    pytest.importorskip("geomx_dgt")
    names = [f"w{i}" for i in range(6)]
    config = {
        "scheduler": {"p3": ONE_PART},
        "compression": {"name": compression},
        "transport": {"name": transport},
    }
    with LocalCluster([2, 1], global_servers=2, config=config) as cluster:

        def work(worker):
            zeros = [np.zeros(5_000, np.float32) for _ in names]
            worker.init(names, zeros)
            order = names if worker.global_rank % 2 else names[::-1]
            outs = {}
            for number in range(3):
                tickets = []
                for i, name in enumerate(order):
                    outs[name] = np.zeros(5_000, np.float32)
                    value = np.full(5_000, number + 1, np.float32)
                    tickets.append(worker.node.push_pull([name], [value], [outs[name]], [i if number else 0]))
                for ticket in tickets:
                    ticket.wait(20)
            return outs

        found = cluster.run(work)
    for outs in found:
        for name in names:
            assert (outs[name] == found[0][name]).all()
            if compression == "none" and transport == "zmq":
                assert (outs[name] == 9).all()


def test_credit_follows_the_line():
    line = Line(bytes_per_s=10e6, round_trip_s=0.05)
    assert P3().credit_bytes("wan", line) == 500_000 + 8 * 4 * 7812
    assert P3().credit_bytes("wan", Line()) == 250_000
    assert P3().credit_grows("wan", Line())
    assert not any(p.credit_grows(t, x) for p, t, x in
                   [(P3(), "lan", Line()), (P3(), "wan", line), (P3(credit_kb=7), "wan", Line())])  # fmt: skip
    assert P3(credit_kb=7).credit_bytes("wan", line) == 7_000
    assert P3().credit_bytes("lan", Line()) == 1_000_000


def test_credit_does_not_overflow_a_shared_queue():
    def line(share_bytes):
        return Line(10e6, 0.05, share_bytes)

    assert P3().credit_bytes("wan", line(400_000)) == 400_000
    assert P3().credit_bytes("wan", line(9e6)) == P3().credit_bytes("wan", line(0)) == 500_000 + 8 * 4 * 7812
    assert P3().credit_bytes("wan", line(10)) == 8 * 4 * 2_000


def test_many_streams_on_a_link_get_short_parts():
    """Their share is still eight parts: credit comes back by whole ones."""
    assert P3().part_length(Line(10e6, 0.05, 9e6), 4) == P3().part_length(Line(10e6, 0.05), 4) == 7812
    assert P3().part_length(Line(10e6, 0.05, 160_000), 4) == 5_000
    assert P3().credit_bytes("wan", Line(10e6, 0.05, 160_000)) == 160_000


def test_a_short_line_keeps_what_its_hosts_hold():
    """A share of 26 kB at 1 Gbit/s, as with network=lan, left a link idle for half of the time."""
    assert P3().credit_bytes("wan", Line(125e6, 0.0002, 26_500)) == 25_000 + 8 * 4 * 2_000


def test_short_lines_get_short_parts():
    line = Line(bytes_per_s=10e6, round_trip_s=0.05)
    assert P3().part_length(line, 4) == 7812
    assert P3().part_length(line, 0.06) == 40_000
    assert P3().part_length(Line(), 4) == P3().part_length(Line(10e6, 0), 4) == 40_000
    assert P3().part_length(Line(10e6, 1e-4), 4) == 2_000
    network = {"name": "continental"}
    assert part_length(load({"scheduler": {"p3": {"part_elements": 9}}, "network": network}), "w", 100, "float32") == 9


def test_layers_rank_by_declaration():
    assert [P3().rank("w", i, 10, "wan") for i in range(3)] == [0, -1, -2]


def test_the_part_length_is_its_own_and_shorter_ones_are_the_transports():
    assert part_length(load({"scheduler": {"p3": {}}})) == 40_000
    assert part_length(load({"scheduler": {"p3": {}}, "transport": {"name": "dgt", "block_bytes": 400}})) == 100
