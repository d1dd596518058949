"""tsengine: eight parties whose access links have 40 to 200 Mbit/s, the server's has 40, in the user-space shaper.
Whole clusters in this process; what is sent are float32 tensors, and every round's sum is checked.

round         seconds of a round, against the star's with the same parts
bound_share   of the bound max(M over the slowest party's rate, M over the server's rate), M being a model
root_bytes    through the server's link, the busier direction, over M; theirs: the star's
control       share of the members' and the server's bytes between parties that carry no tensor; theirs: 1 %
halved        rounds after the fastest party's link halves until they take no longer than 1.15 times what they take,
              in the median, where the link had that rate from the start and nothing is tried at random: the best plan
              that we know of, with nothing to learn; theirs: 10

`python -m geomx_tsengine.bench SEED ...` runs ours with these seeds of chance and prints figures' medians and
ranges.
"""

import dataclasses
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
HALVES_S = 12.0  # after the links were made: joining and some rounds fit in
SLACK, LATEST = 1.15, 10  # rounds this much longer than the best are good enough, by this many after a change
Figures = dict[str, float]
log = logging.getLogger(__name__)


def run(quick: bool) -> dict[str, Case]:
    """A model of 2 MB in quick, of 4 MB else."""
    elements = 500_000 if quick else 1_000_000
    star = measure(None, elements, rounds=2)
    ours = measure({}, elements, rounds=8 if quick else 12)
    bound_s = elements * 4 * 8 / (min(*MBIT, SERVER_MBIT) * 1e6)
    cases = {
        "round": Case(ours["seconds"], star["seconds"], "s"),
        "bound_share": Case(bound_s / ours["seconds"], bound_s / star["seconds"], "of the bound", "more"),
        "root_bytes": Case(ours["root"] / (4 * elements), star["root"] / (4 * elements), "models"),
        "control": Case(ours["control"], 0.01, "of all bytes"),
    }
    return cases if quick else {**cases, "halved": Case(halved(elements), LATEST, "rounds")}


def halved(elements: int, seed: int = 1) -> float:
    """Rounds until they are good again; one more than were measured if they aren't."""
    rate = max(MBIT) / 2
    known = measure({"max_greed_rate": 1.0, "seed": seed}, elements, 12, [*MBIT[:-1], rate])["seconds"]
    seconds = after_halving({"seed": seed}, elements)
    log.info("known from the start: %.2f; after the change: %s", known, " ".join(f"{s:.2f}" for s in seconds))
    return next((i for i, s in enumerate(seconds, 1) if s <= SLACK * known), len(seconds) + 1)


def measure(overlay: dict[str, Any] | None, elements: int, rounds: int, mbit: Sequence[float] = MBIT) -> Figures:
    """The median of the rounds' seconds, without the first quarter, in which links are measured. overlay: options;
    None: the star."""
    with _cluster(overlay, {f"party{i}": {"rate_mbit": rate} for i, rate in enumerate(mbit)}) as running:
        return _counted_rounds(running, elements, rounds)


def after_halving(overlay: dict[str, Any], elements: int) -> list[float]:
    """Seconds of the rounds that begin after the fastest party's link has half its rate."""
    access: dict[str, Any] = {f"party{i}": {"rate_mbit": rate} for i, rate in enumerate(MBIT)}
    access[f"party{MBIT.index(max(MBIT))}"]["shares"] = [[HALVES_S, 0.5]]
    halves_s = time.monotonic() + HALVES_S
    begun: list[float] = []

    def goes_on(seconds: list[float]) -> bool:
        return sum(at >= halves_s for at in begun) < LATEST + 2

    with _cluster(overlay, access) as running:
        seconds = _seconds(running, elements, goes_on, lambda number: begun.append(time.monotonic()))
    return [s for at, s in zip(begun, seconds, strict=True) if at >= halves_s]


@contextmanager
def _cluster(overlay: dict[str, Any] | None, access: dict[str, Any]) -> Iterator[LocalCluster]:
    parties = len(MBIT)
    network = {"rate_mbit": SERVER_MBIT, "access": access, "delay_ms": 1.0}
    ours = {} if overlay is None else {"tsengine": overlay}
    config = {"scheduler": {"fifo": {"part_elements": PART}, **ours}, "network": network}
    with tempfile.TemporaryDirectory() as directory:
        file = str(Path(directory) / "links")
        _core.make_wan_links(file, parties + 1)
        cluster = LocalCluster([1] * parties, config=config, deadline_s=240.0,
                               change=lambda spec: dataclasses.replace(spec, links=file))  # fmt: skip
        with cluster as running:
            yield running


def _seconds(
    cluster: LocalCluster, elements: int, goes_on: Callable[[list[float]], bool],
    before: Callable[[int], None] = lambda number: None,
) -> list[float]:  # fmt: skip
    """Of each round, the slowest worker's; checks the sums. goes_on is asked with those so far, before with the number
    of the round that is about to begin, by one worker."""
    first = cluster.workers[0]
    slowest: list[float] = []
    times: dict[int, float] = {}
    asks = [True]

    def work(worker: Worker) -> None:
        index = cluster.workers.index(worker)
        out = np.zeros(elements, np.float32)
        gradient = np.full(elements, index + 1, np.float32)
        worker.init("model", out)
        while asks[0]:
            worker.barrier(world=True)
            if worker is first:
                before(len(slowest))
            began = time.perf_counter()
            worker.push_pull("model", gradient, out)
            times[index] = time.perf_counter() - began
            if not (out == sum(range(1, len(MBIT) + 1))).all():
                raise RunFailed("a round's sum is wrong")
            worker.barrier(world=True)
            if worker is first:
                slowest.append(max(times.values()))
                asks[0] = goes_on(slowest)
            worker.barrier(world=True)

    cluster.run(work)
    log.info("seconds of rounds: %s", " ".join(f"{s:.2f}" for s in slowest))
    return slowest


def _counted_rounds(cluster: LocalCluster, elements: int, rounds: int) -> Figures:
    first = rounds // 4
    before: dict[str, dict[str, float]] = {}

    def note(number: int) -> None:
        if number == first:
            before.update(_counted(cluster))

    slowest = _seconds(cluster, elements, lambda times: len(times) < rounds, note)
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


def several(seeds: Sequence[int], elements: int = 1_000_000) -> None:
    """Prints each figure's median and range over these seeds of chance, and the star's round."""
    bound_s = elements * 4 * 8 / (min(*MBIT, SERVER_MBIT) * 1e6)
    print(f"star: {measure(None, elements, rounds=2)['seconds']:.2f} s a round")
    rows = [{**measure({"seed": seed}, elements, 12), "halved": halved(elements, seed)} for seed in seeds]
    for what, unit, scale in (("seconds", "s a round", 1.0), ("root", "models", 0.25 / elements),
                              ("control", "% of all bytes", 100.0), ("halved", "rounds", 1.0)):  # fmt: skip
        values = sorted(row[what] * scale for row in rows)
        print(f"{what}: {statistics.median(values):.3f} {unit} ({values[0]:.3f} to {values[-1]:.3f})")
    print(f"bound: {bound_s:.2f} s; share {bound_s / statistics.median(row['seconds'] for row in rows):.2f}")


if __name__ == "__main__":
    several([int(word) for word in sys.argv[1:]] or [1, 2, 3])
