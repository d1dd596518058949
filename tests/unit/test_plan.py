"""Where tensors are placed and how they are cut."""

import pytest

from geomx.api import Line, Shard, Tensor
from geomx.config import load
from geomx.config.techniques import Fifo
from geomx.errors import ConfigError
from geomx.plan import Planner, part_length, place


def planner(**topology):
    return Planner(load({"topology": {"name": "hips", **topology}}))


@pytest.mark.parametrize("servers", range(1, 8))
@pytest.mark.parametrize("length", [0, 1, 6, 7, 999_999, 1_000_000, 1_000_001, 5_000_003])
def test_every_element_has_one_server(servers, length):
    shards = planner(global_servers=servers).shards("w", length, servers)
    assert sum(s.length for s in shards) == length
    assert len(shards) == (servers if length > 1_000_000 else 1)
    assert max(s.length for s in shards) - min(s.length for s in shards) <= 1


def test_the_bound_compares_by_more_than():
    made = planner(bigarray_bound=10)
    assert len(made.shards("a", 10, 2)) == 1
    assert len(made.shards("b", 11, 2)) == 2


def test_more_servers_than_elements():
    assert planner(bigarray_bound=1).shards("w", 2, 5) == [Shard(2, 0, 1), Shard(4, 1, 1)]


def test_small_tensors_go_where_least_is():
    made = planner()
    found = [made.shards(f"w{i}", length, 2)[0].server for i, length in enumerate([100, 30, 30, 30, 30])]
    assert found == [0, 1, 1, 1, 1]


def test_the_same_declarations_give_the_same_placement():
    lengths = [5, 900, 3_000_000, 17, 0, 1]
    first, second = planner(), planner()
    assert [first.shards("w", n, 3) for n in lengths] == [second.shards("w", n, 3) for n in lengths]


def test_parts_come_from_the_scheduler():
    assert part_length(load({})) == 262_144
    assert part_length(load({"scheduler": {"fifo": {"part_elements": 7}}})) == 7


def test_parts_are_short_where_the_line_is_known():
    """As long as credit comes back by: a 16th of the bandwidth-delay product, an 8th of a share."""
    network = {"rate_mbit": 100.0, "delay_ms": 25.0}
    assert part_length(load({"network": network})) == 9_765
    assert part_length(load({"network": network, "scheduler": {"tsengine": {}}})) == 9_765
    assert part_length(load({"network": network, "topology": {"name": "hips", "parties": 8}})) == 4_713
    assert part_length(load({"network": network, "scheduler": {"fifo": {"part_elements": 0}}})) == 0
    assert part_length(load({"network": network, "scheduler": {"fifo": {"part_elements": 7}}})) == 7


def test_fifo_keeps_what_is_on_its_way_within_the_queues_that_network_describes():
    line, unknown = Line(10e6, 0.05, 400_000), Line()
    assert Fifo().credit_bytes("wan", line) == 400_000
    assert Fifo().credit_bytes("wan", unknown) == Fifo().credit_bytes("lan", unknown) == 64 << 20
    assert Fifo(part_elements=0).credit_bytes("wan", line) == 64 << 20
    assert Fifo(credit_kb=7).credit_bytes("wan", line) == Fifo(credit_kb=7).credit_bytes("wan", unknown) == 7_000
    assert not Fifo().credit_grows("wan", unknown)


@pytest.mark.parametrize(
    "shards",
    [
        [],
        [Shard(0, 0, 9)],
        [Shard(0, 0, 5), Shard(1, 4, 6)],
        [Shard(0, 0, 10), Shard(1, 10, 0)],
        [Shard(2, 0, 10)],
        [Shard(0, 0, 10), Shard(1, 0, 10)],
    ],
)
def test_a_placement_that_does_not_cover_is_refused(shards):
    made = planner()
    made._place = lambda options, tensors, held: [shards]
    with pytest.raises(ConfigError, match="the shards of w must cover its 10 elements once"):
        made.shards("w", 10, 2)


def test_place_takes_a_tuple_of_loads():
    options = load({}).topology
    assert place(options, [Tensor("w", 3, 12.0)], (5, 2, 2)) == [[Shard(1, 0, 3)]]


def test_a_list_is_placed_at_once_and_others_one_by_one():
    asked = []
    made = planner()
    made._place = lambda options, tensors, held: (
        asked.append([t.name for t in tensors]) or place(options, tensors, held)
    )
    made.announce([("a", 5, "float32"), ("b", 7, "float32")])
    assert made.shards("a", 5, 2) == [Shard(0, 0, 5)]
    assert made.shards("c", 1, 2) == [Shard(0, 0, 1)]
    assert made.shards("b", 7, 2) == [Shard(1, 0, 7)]
    assert asked == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("config", "elements"),
    [
        ({}, 262_144),
        ({"transport": {"name": "dgt", "block_bytes": 1400}}, 350),
        ({"transport": {"name": "dgt", "block_bytes": 1400}, "compression": {"name": "fp16"}}, 700),
        ({"transport": {"name": "dgt", "block_bytes": 1500}, "compression": {"name": "bsc", "ratio": 0.05}}, 5000),
        ({"transport": {"name": "dgt", "block_bytes": 1400}, "scheduler": {"fifo": {"part_elements": 100}}}, 100),
        ({"transport": {"name": "dgt", "block_bytes": 1400}, "scheduler": {"fifo": {"part_elements": 0}}}, 350),
    ],
)
def test_a_transport_may_want_shorter_parts(config, elements):
    """So many elements that their codec makes about a block of them."""
    pytest.importorskip("geomx_dgt")
    assert part_length(load(config), "w", 100_000, "float32") == elements


@pytest.mark.parametrize(
    ("config", "length", "elements"),
    [
        ({"scheduler": {"tsengine": {}}}, 1_000, 10_000),  # 40 KB at least
        ({"scheduler": {"tsengine": {}}}, 6_400_000, 100_000),  # a 64th
        ({"scheduler": {"tsengine": {}}}, 64_000_000, 262_144),
        ({"scheduler": {"fifo": {"part_elements": 77}, "tsengine": {}}}, 6_400_000, 77),
    ],
)
def test_an_overlay_may_want_shorter_parts(config, length, elements):
    pytest.importorskip("geomx_tsengine")
    assert part_length(load(config), "w", length, "float32") == elements


def test_more_elements_than_any_part_has_are_as_good_as_any():
    huge = load({"scheduler": {"fifo": {"part_elements": 10**20}}})
    assert part_length(huge) == 2**31
