"""What every placement must keep: each element of each tensor lies on exactly one server.

class TestMine(PlacementSuite):
    choice = "topology=mine"
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from geomx import plugins
from geomx.api import Shard, Tensor
from geomx.testing.cluster import LocalCluster
from geomx.testing.plugin_suite import PluginSuite, elsewhere
from geomx.testing.training import check_sums, summed

MOST_SERVERS = 16
LENGTHS = (0, 1, 2, 7, 256, 1000, 1_000_000, 1_000_001, 25_000_000)
Case = tuple[list[Tensor], list[float]]


class PlacementSuite(PluginSuite):
    servers: ClassVar[Sequence[int]] = range(1, MOST_SERVERS + 1)

    @pytest.mark.parametrize("servers", range(1, MOST_SERVERS + 1))
    def test_each_element_lies_on_one_server(self, servers: int) -> None:
        if servers not in self.servers:
            pytest.skip(f"it is for {', '.join(map(str, self.servers))} servers")
        place, options = self._place(servers)
        for tensors, held in cases(servers):
            placed = place(options, tuple(tensors), tuple(held))
            assert len(placed) == len(tensors), (
                f"{len(tensors)} tensors: expected shards for each, got {len(placed)} lists"
            )
            for tensor, shards in zip(tensors, placed, strict=True):
                check_cover(tensor, shards, servers)

    def test_it_places_tensors_that_come_one_by_one(self) -> None:
        place, options = self._place(4)
        held = [0.0] * 4
        for i, length in enumerate(LENGTHS * 3):
            tensor = Tensor(f"t{i}", length, 4.0 * length)
            (shards,) = place(options, (tensor,), tuple(held))
            check_cover(tensor, shards, 4)
            for shard in shards:
                held[shard.server] += 4.0 * shard.length

    def test_the_same_tensors_lie_where_they_lay(self) -> None:
        group, _, name = self.choice.partition("=")
        given = {"name": name, **self.options, "global_servers": 3}
        here, again = told(group, given), told(group, given)
        assert here == again, "the same tensors were placed differently when asked again"
        there = elsewhere("geomx.testing.placement_suite:told", group, given)
        assert here == there, "the same tensors were placed differently in another process: runs can't be repeated"

    @pytest.mark.parametrize("servers", [1, 3])
    def test_every_worker_gets_the_sum(self, servers: int) -> None:
        if servers not in self.servers:
            pytest.skip(f"it is for {', '.join(map(str, self.servers))} servers")
        config = self.config()
        config["topology"] |= {"bigarray_bound": 1000}
        with LocalCluster([2, 1], global_servers=servers, config=config) as cluster:
            check_sums(summed(cluster, (0, 1, 5, 999, 1000, 1001, 20_011)))

    def _place(self, servers: int) -> tuple[Any, Any]:
        options = self.made(global_servers=servers)
        return plugins.imported(options.placement, self.choice), options


def cases(servers: int) -> Iterator[Case]:
    """Lists of tensors, with what servers hold before."""
    random = np.random.default_rng(servers)
    empty = [0.0] * servers
    yield [], empty
    yield [Tensor(f"t{i}", n, 4.0 * n) for i, n in enumerate(LENGTHS)], empty
    yield [Tensor(f"t{i}", n, 0.02 * n) for i, n in enumerate(reversed(LENGTHS))], empty
    yield [Tensor(f"t{i}", 0, 0.0) for i in range(5)], empty
    for _ in range(8):
        lengths = (10 ** random.uniform(0, 7, 20)).astype(int)
        held = [float(h) for h in random.uniform(0, 1e8, servers)]
        yield [Tensor(f"layer{i}.weight", int(n), 4.0 * int(n)) for i, n in enumerate(lengths)], held


def check_cover(tensor: Tensor, shards: Sequence[Shard], servers: int) -> None:
    """Raises AssertionError with what is missing, or there twice."""
    of = f"{tensor.name} of {tensor.length} elements on {servers} servers"
    assert shards, f"{of}: expected a shard at least, got none"
    at = 0
    for shard in sorted(shards, key=lambda s: (s.offset, s.length)):
        assert 0 <= shard.server < servers, f"{of}: expected servers from 0 to {servers - 1}, got {shard}"
        assert shard.length > 0 or tensor.length == 0, f"{of}: expected no empty shards, got {shard}"
        assert shard.offset <= at, f"{of}: expected each element on one server, {at} to {shard.offset - 1} are on none"
        assert shard.offset >= at, f"{of}: expected each element on one server, {shard.offset} to {at - 1} are on two"
        at += shard.length
    assert at == tensor.length, f"{of}: expected each element on one server, the shards end at {at}"


def told(group: str, given: dict[str, Any]) -> list[Any]:
    """All placements as JSON holds them."""
    options = plugins.options(group, given)
    place = plugins.imported(options.placement, group)
    placed = [place(options, tuple(tensors), tuple(held)) for tensors, held in cases(options.global_servers)]
    return [[[[s.server, s.offset, s.length] for s in shards] for shards in one] for one in placed]
