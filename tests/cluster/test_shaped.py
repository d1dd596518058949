"""Whole rounds through the shaper: the same values as without, and never sooner than light and links allow."""

import dataclasses
import time

import numpy as np
import pytest

from geomx import _core
from geomx.config.network import Network
from geomx.testing import LocalCluster
from geomx.wan.plan import resolve
from geomx.wan.shaper import self_test


def cluster(tmp_path, network, parties, **options):
    file = str(tmp_path / "links")
    _core.make_wan_links(file, len(parties) + 1)
    return LocalCluster(
        parties, config={"network": network}, change=lambda spec: dataclasses.replace(spec, links=file), **options
    )


@pytest.mark.parametrize("flat", [False, True])
def test_rounds_over_a_shaped_wan_give_the_same_sums_and_take_their_time(tmp_path, flat):
    elements, rounds = 50_000, 2
    network = {"rate_mbit": 80.0, "delay_ms": 30.0, "jitter_ms": 2.0}
    with cluster(tmp_path, network, [2, 2], flat=flat) as running:

        def work(worker):
            out = np.zeros(elements, np.float32)
            worker.init("w", out)
            began = time.monotonic()
            for number in range(rounds):
                worker.push_pull("w", np.full(elements, number + 1, np.float32), out)
            return out, time.monotonic() - began

        found = running.run(work)
    for out, seconds in found:
        assert (out == 4 * rounds).all()
        # there and back, and all senders' bytes through the server's one link of 10 MB/s, up and down
        senders = 4 if flat else 2
        assert seconds > rounds * (2 * 0.028 + senders * elements * 4 / 10e6)


def test_a_node_without_the_links_file_is_refused_with_a_sentence(tmp_path):
    with pytest.raises(_core.Refused, match="all nodes must be on the launcher's host"):
        LocalCluster(
            [1],
            config={"network": {"delay_ms": 1.0}},
            change=lambda spec: dataclasses.replace(spec, links=str(tmp_path / "none")),
        ).start()


def test_the_self_test_measures_real_messages():
    wan = resolve(Network(rate_mbit=40, delay_ms=10), LocalCluster([1]).config.topology)
    (row,) = self_test(wan)
    assert row["rate_mbit"][0] == 40 and 1 < row["rate_mbit"][1] < 44
    assert row["delay_ms"][0] == 10 and row["delay_ms"][1] >= 9.9
