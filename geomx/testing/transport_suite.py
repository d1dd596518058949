"""What every transport must keep: nothing is lost for good, nothing counts twice, and all workers get the same.

class TestMine(TransportSuite):
    choice = "transport=mine"
"""

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from geomx import _core
from geomx.api import TransportChoice
from geomx.testing.cluster import LocalCluster
from geomx.testing.native import check_choice, check_libraries
from geomx.testing.plugin_suite import PluginSuite
from geomx.testing.training import check_sums, summed

LENGTHS = (0, 1, 255, 20_011)
LOSSY_WAN = {"rate_mbit": 200.0, "delay_ms": 1.0, "loss": 0.2}
SHORT = {"fifo": {"part_elements": 256}}  # many parts, so that there is something to class


class TransportSuite(PluginSuite):
    error: ClassVar[float] = 1e-3  # of a sum, of whole numbers up to 8 from each worker, once everything has arrived
    rounds_to_drain: ClassVar[int] = 40  # after which everything has arrived, if nothing new is pushed

    def test_its_library_is_there(self) -> None:
        check_libraries(self.made())

    def test_every_node_chooses_the_same(self) -> None:
        check_choice(self.made().choice, TransportChoice, "choice()")

    def test_every_worker_gets_the_sum(self) -> None:
        config = {"scheduler": SHORT, **self.config(), "topology": {"bigarray_bound": 1000}}
        drain = self.rounds_to_drain if self.made().lossy else 0
        with LocalCluster([2, 1], global_servers=2, config=config) as cluster:
            check_sums(summed(cluster, LENGTHS, drain=drain), self.error)

    def test_it_says_whether_parts_may_be_dropped(self) -> None:
        with LocalCluster([1, 1], config={"scheduler": SHORT, **self.config()}) as cluster:
            summed(cluster, LENGTHS)
            dropped = cluster.counters("local_server").get("wan.droppable_parts", 0)
        assert self.made().lossy or not dropped, f"lossy is False, and {dropped:g} parts were sent as droppable"

    def test_what_the_network_loses_arrives_later(self) -> None:
        if not self.made().lossy:
            pytest.skip("it is not lossy: a network that loses packets is refused with it")
        config = {"scheduler": SHORT, **self.config(), "network": LOSSY_WAN}
        with links(parties=3) as change, LocalCluster([1, 1], config=config, change=change) as cluster:
            results = summed(cluster, LENGTHS, drain=self.rounds_to_drain)
        check_sums(results, self.error)
        for one, two in zip(*results, strict=True):
            assert np.array_equal(one[1], two[1]), "two workers got different values in the same rounds"


@contextmanager
def links(parties: int) -> Iterator[Any]:
    """What LocalCluster takes as `change`, so that the nodes share an emulated WAN."""
    with tempfile.TemporaryDirectory(prefix="geomx-links-") as folder:
        file = str(Path(folder) / "links")
        _core.make_wan_links(file, parties)
        yield lambda spec: dataclasses.replace(spec, links=file)
