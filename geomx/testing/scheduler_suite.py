"""What every scheduler must keep: it may change when parts leave, never what arrives.

class TestMine(SchedulerSuite):
    choice = "scheduler=mine"
"""

from collections.abc import Iterator
from typing import Any

import pytest

from geomx import plugins
from geomx.api import Line, Scheduler
from geomx.policies import MOST_RANK
from geomx.testing.cluster import LocalCluster
from geomx.testing.plugin_suite import PluginSuite, elsewhere, is_number
from geomx.testing.training import check_sums, summed

LINES = (Line(), Line(125e3, 0.6), Line(12.5e6, 0.08), Line(1.25e9, 0.0005))  # unknown, satellite, WAN, LAN
LENGTHS = (0, 1, 255, 1000, 100_003)
Ask = tuple[str, int, int, str]


class SchedulerSuite(PluginSuite):
    def test_it_fills_the_place_of_a_scheduler(self) -> None:
        fills = getattr(self.made(), "fills", ())
        assert "scheduler" in fills, f"expected fills with 'scheduler', got {fills!r}"

    def test_ranks_are_whole_numbers_within_bounds(self) -> None:
        options = self._ranking()
        for ask in asked():
            rank = options.rank(*ask)
            fits = isinstance(rank, int) and -MOST_RANK <= rank <= MOST_RANK
            assert fits, f"rank{ask}: expected a whole number between -2**30 and 2**30, got {rank!r}"

    def test_every_node_ranks_the_same(self) -> None:
        self._ranking()
        group, _, name = self.choice.partition("=")
        given = {"name": name, **self.options}
        here, there = ranks(group, given), elsewhere("geomx.testing.scheduler_suite:ranks", group, given)
        for ask, one, two in zip(asked(), here, there, strict=True):
            assert one == two, f"rank{ask}: {one} in this process, {two} in another; nodes must agree"

    def test_parts_have_a_length(self) -> None:
        options = self._ranking()
        for line in LINES:
            for width in (0.01, 1.0, 8.0):
                length = options.part_length(line, width)
                fits = isinstance(length, int) and length >= 0
                assert fits, f"part_length({line}, {width}): expected elements, or 0 for uncut, got {length!r}"

    def test_there_is_credit(self) -> None:
        options = self._ranking()
        for tier in ("lan", "wan"):
            for line in LINES:
                credit = options.credit_bytes(tier, line)
                fits = is_number(credit) and credit >= 0
                assert fits, f"credit_bytes({tier!r}, {line}): expected bytes, got {credit!r}"

    def test_every_worker_gets_the_sum(self) -> None:
        config = {**self.config(), "topology": {"bigarray_bound": 1000}}
        with LocalCluster([2, 1], global_servers=2, config=config) as cluster:
            check_sums(summed(cluster, LENGTHS))

    def _ranking(self) -> Scheduler:
        options = self.made()
        if not isinstance(options, Scheduler):
            elements = getattr(options, "part_elements", None)
            assert isinstance(elements, int), f"expected a geomx.api.Scheduler, or part_elements, got {elements!r}"
            pytest.skip("it ranks nothing: it is no geomx.api.Scheduler")
        return options


def asked() -> Iterator[Ask]:
    for name in ("fc0.weight", "0", "block 1/ключ"):
        for order in (0, 1, 7, 10_000):
            for length in (0, 1, 1000, 25_000_000, 2**32 + 1):
                for tier in ("lan", "wan"):
                    yield name, order, length, tier


def ranks(group: str, given: dict[str, Any]) -> list[int]:
    """All answers as JSON holds them."""
    options = plugins.options(group, given)
    return [options.rank(*ask) for ask in asked()]
