"""tsengine: eight parties whose access links have 40 to 200 Mbit/s, the server's has 40, in the user-space shaper.
Whole clusters in this process; what is sent are float32 tensors, and every round's sum is checked.

round         seconds of a round, against the star's with the same parts
bound_share   of the bound max(M over the slowest party's rate, M over the server's rate), M being a model
root_bytes    through the server's link, the busier direction, over M; theirs: the star's
control       share of the members' and the server's bytes between parties that carry no tensor; theirs: 1 %
"""

import dataclasses
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from geomx import _core
from geomx.bench import Case
from geomx.errors import RunFailed
from geomx.testing import LocalCluster, Worker

MBIT = [40.0, 63.0, 86.0, 109.0, 131.0, 154.0, 177.0, 200.0]
SERVER_MBIT = 40.0
PART = 10_000
Figures = dict[str, float]


def run(quick: bool) -> dict[str, Case]:
    """A model of 2 MB in quick, of 4 MB else."""
    elements = 500_000 if quick else 1_000_000
    star = measure({}, elements, rounds=2)
    ours = measure({"tsengine": {}}, elements, rounds=8 if quick else 12)
    bound_s = elements * 4 * 8 / (min(*MBIT, SERVER_MBIT) * 1e6)
    return {
        "round": Case(ours["seconds"], star["seconds"], "s"),
        "bound_share": Case(bound_s / ours["seconds"], bound_s / star["seconds"], "of the bound", "more"),
        "root_bytes": Case(ours["root"] / (4 * elements), star["root"] / (4 * elements), "models"),
        "control": Case(ours["control"], 0.01, "of all bytes"),
    }


def measure(overlay: dict[str, Any], elements: int, rounds: int) -> Figures:
    """The median of the rounds' seconds, without the first quarter, in which links are measured."""
    parties = len(MBIT)
    access = {f"party{i}": {"rate_mbit": rate} for i, rate in enumerate(MBIT)}
    network = {"rate_mbit": SERVER_MBIT, "access": access, "delay_ms": 1.0}
    config = {"scheduler": {"fifo": {"part_elements": PART}, **overlay}, "network": network}
    with tempfile.TemporaryDirectory() as directory:
        file = str(Path(directory) / "links")
        _core.make_wan_links(file, parties + 1)
        cluster = LocalCluster([1] * parties, config=config, deadline_s=240.0,
                               change=lambda spec: dataclasses.replace(spec, links=file))  # fmt: skip
        with cluster as running:
            return _rounds(running, elements, rounds)


def _rounds(cluster: LocalCluster, elements: int, rounds: int) -> Figures:
    first = rounds // 4
    before: dict[str, dict[str, float]] = {}

    def work(worker: Worker) -> list[float]:
        out = np.zeros(elements, np.float32)
        gradient = np.full(elements, cluster.workers.index(worker) + 1, np.float32)
        worker.init("model", out)
        seconds = []
        for number in range(rounds):
            worker.barrier(world=True)
            if number == first and worker is cluster.workers[0]:
                before.update(_counted(cluster))
            began = time.perf_counter()
            worker.push_pull("model", gradient, out)
            seconds.append(time.perf_counter() - began)
            if not (out == sum(range(1, len(MBIT) + 1))).all():
                raise RunFailed("a round's sum is wrong")
        return seconds

    by_worker = cluster.run(work)
    slowest = [max(times) for times in zip(*by_worker, strict=True)]
    after = _counted(cluster)
    delta = {name: {what: after[name][what] - before[name][what] for what in after[name]} for name in after}
    root = delta["root"]
    counted = rounds - first
    total = {what: sum(d[what] for d in delta.values()) for what in root}
    return {
        "seconds": statistics.median(slowest[first:]),
        "root": max(root["wan.down_bytes"], _to_root(cluster) / rounds * counted) / counted,
        "control": total["wan.control_bytes"] / max(1.0, sum(total.values())),
    }


def _counted(cluster: LocalCluster) -> dict[str, dict[str, float]]:
    names = ("wan.up_bytes", "wan.down_bytes", "wan.control_bytes")
    root, members = cluster.counters("global_server"), cluster.counters("local_server")
    return {"root": {n: root[n] for n in names}, "members": {n: members[n] for n in names}}


def _to_root(cluster: LocalCluster) -> float:
    """Bytes of contributions that were sent to the server, of all rounds."""
    total = 0.0
    for name, node in cluster.nodes.items():
        if name.endswith(".server"):
            for tier, to, _key, account, *_, payload, framing in node.ledger()["sent"]:
                if tier == "wan" and to.startswith("global server") and account == "up":
                    total += payload + framing
    return total
