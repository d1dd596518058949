"""What every overlay must keep: it may change by whom values travel, never what arrives.

class TestMine(OverlaySuite):
    choice = "scheduler=mine"
"""

import numpy as np

from geomx.api import OverlayChoice
from geomx.testing.cluster import LocalCluster, Worker
from geomx.testing.native import check_choice, check_libraries
from geomx.testing.plugin_suite import PluginSuite
from geomx.testing.training import Config, check_sums, summed

LENGTHS = (0, 1, 255, 3000)


class OverlaySuite(PluginSuite):
    def config(self) -> Config:
        """Short parts, so that many are under way at once."""
        chosen = super().config()
        return {**chosen, "scheduler": {"fifo": {"part_elements": 256}, **chosen["scheduler"]}}

    def test_it_fills_the_place_of_an_overlay(self) -> None:
        fills = getattr(self.made(), "fills", ())
        assert "overlay" in fills, f"expected fills with 'overlay', got {fills!r}"

    def test_its_library_is_there(self) -> None:
        check_libraries(self.made())

    def test_every_node_chooses_the_same(self) -> None:
        options = self.made()
        for tier in ("lan", "wan"):
            check_choice(lambda tier=tier: options.choice(tier), OverlayChoice, f"choice({tier!r})")

    def test_every_worker_gets_the_sum_of_many_parties(self) -> None:
        with LocalCluster([1, 1, 1, 1], config=self.config()) as cluster:
            check_sums(summed(cluster, LENGTHS))

    def test_every_worker_gets_the_sum_with_several_servers_and_a_central_party(self) -> None:
        config = {**self.config(), "topology": {"bigarray_bound": 1000}}
        with LocalCluster([3, 1], global_servers=2, central_workers=1, central_trains=True, config=config) as cluster:
            check_sums(summed(cluster, LENGTHS))

    def test_parties_that_nobody_can_connect_to(self) -> None:
        parties = [{"name": f"party{i}", "workers": 1, "reachable": i == 0} for i in range(3)]
        with LocalCluster([1, 1, 1], config={**self.config(), "topology": {"parties": parties}}) as cluster:
            check_sums(summed(cluster, LENGTHS))

    def test_whoever_leaves_is_not_waited_for(self) -> None:
        with LocalCluster([1, 1, 1], config=self.config()) as cluster:

            def work(worker: Worker) -> list[float]:
                seed = cluster.workers.index(worker)
                out, got = np.zeros(1000, np.float32), []
                worker.init("t", out)
                for _ in range(2 + seed):
                    worker.push_pull("t", np.full(1000, seed + 1, np.float32), out)
                    got.append(float(out[0]))
                worker.leave()
                return got

            results = cluster.run(work)
        expected = [[6.0, 6.0], [6.0, 6.0, 5.0], [6.0, 6.0, 5.0, 3.0]]
        assert results == expected, f"workers that leave after 2, 3 and 4 rounds: expected {expected}, got {results}"
