"""wan: this project against MXNet's own dist_sync over one emulated WAN, in turns A-B-A-B. 2 parties and a central one,
each with its own access link of 100 Mbit/s, 50 ms round trip, in network namespaces with a packet router between them
(queues of one bandwidth-delay product). Same model (a CNN with 5 million parameters, in tensors of which none is most
of it), data, batches, optimizer (Adam on the server) and worker code on both sides; bytes as the kernel counts them at
the parties' WAN devices. Needs root.

One congestion control for both sides, named in the output: it decides how far MXNet's four flows starve each other.

tiers_bytes            WAN bytes of a round, 4 workers a party: two tiers against MXNet's one
vanilla_iteration      seconds a round, 2 workers a party, nothing compressed
best_time_to_accuracy  seconds of training until 90 % of the test set are right; ours with BEST
shaper_fidelity        seconds a round of ours: over the router, and over the user-space shaper
"""

import contextlib
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from geomx.bench import Case
from geomx.bench.wan_sides import Job, Ours, Side, Stock, wan_bytes
from geomx.config import Hips
from geomx.config.network import Network
from geomx.errors import ConfigError
from geomx.wan import selftest
from geomx.wan.plan import Wan, resolve
from geomx.wan.probe import self_test
from geomx.wan.router import Router, missing

RATE_MBIT, DELAY_MS = 100.0, 25.0
CONGESTION = "bbr"
LARGE, SMALL = "large", "seed"  # 5.0 and 0.18 million parameters
LEARNING_RATE = 0.001
GOAL = 0.90
MOST_STEPS = 200
TURNS, QUICK_TURNS = 5, 2
# The optimizer is on the workers: weights, which a server's would send down, can't be sparse.
BEST: dict[str, Any] = {
    "compression": {"name": "mpq", "ratio": 0.01, "value_bits": 8},
    "sync": {"name": "fsa", "optimizer": {"name": "adam", "where": "worker", "learning_rate": LEARNING_RATE}},
}


def run(quick: bool, names: Sequence[str] = ()) -> dict[str, Case]:
    """quick: the small model, few turns. Raises RuntimeError if a side fails, ConfigError where there can be no WAN."""
    if why := missing():
        raise ConfigError(f"bench wan: {why}")
    found: dict[str, Case] = {}
    names = names or list(CASES)
    with field() as place:
        place.introduce()
        for name in names:
            found[name] = CASES[name](place, quick)
            print(f"{name}: ours {found[name].ours:.4g}, theirs {found[name].theirs:.4g} {found[name].unit}",
                  file=sys.stderr, flush=True)  # fmt: skip
        place.conclude()
    return found


@dataclass
class Field:
    """The emulated WAN, and ports that no two clusters share."""

    wan: Wan
    router: Router
    ports: Iterator[int]

    @contextlib.contextmanager
    def stock(self, job: Job) -> Iterator[Side]:
        side = Stock(self.router, self.wan, job, next(self.ports))
        try:
            side.ready()
            yield side
        finally:
            side.stop()

    @contextlib.contextmanager
    def ours(self, job: Job, shaped: bool = False, **groups: Any) -> Iterator[Side]:
        side = Ours(None if shaped else self.router, self.wan, job, next(self.ports), **groups)
        try:
            side.ready()
            yield side
        finally:
            side.stop()

    def bytes_of(self, side: Side, steps: int) -> float:
        """A round's, in steady state."""
        before = wan_bytes(self.router, self.wan.parties[:-1])
        side.steps(steps)
        return (wan_bytes(self.router, self.wan.parties[:-1]) - before) / steps

    def introduce(self) -> None:
        print(f"{RATE_MBIT:g} Mbit/s access links, {2 * DELAY_MS:g} ms round trip, TCP {self.router.congestion}, "
              f"queues of {self.wan.queue_bytes[0] / 1e3:.0f} kB", file=sys.stderr)  # fmt: skip
        for row in self_test(self.router, self.wan):
            print(f"network: {selftest.text(row)}", file=sys.stderr)

    def conclude(self) -> None:
        counted = self.router.counters()
        print(f"router: {counted['cpu_s'] / counted['wall_s']:.1%} of a core", file=sys.stderr)


@contextlib.contextmanager
def field(congestion: str = CONGESTION, rate_mbit: float = RATE_MBIT, delay_ms: float = DELAY_MS) -> Iterator[Field]:
    wan = resolve(Network(rate_mbit=rate_mbit, delay_ms=delay_ms), Hips(parties=[{"name": "a"}, {"name": "b"}]))
    router = Router(wan, congestion, 1)
    try:
        yield Field(wan, router, itertools.count(9100, 20))
    finally:
        router.close()


def tiers_bytes(place: Field, quick: bool) -> Case:
    job, steps = Job(4, SMALL if quick else LARGE, LEARNING_RATE), 2
    with place.ours(job) as side:
        ours = place.bytes_of(side, steps)
    with place.stock(job) as side:
        theirs = place.bytes_of(side, steps)
    return Case(ours, theirs, "bytes/round")


def vanilla_iteration(place: Field, quick: bool) -> Case:
    job = Job(2, SMALL if quick else LARGE, LEARNING_RATE)
    with place.ours(job) as ours, place.stock(job) as theirs:
        found = race(ours, theirs, QUICK_TURNS if quick else TURNS)
        print(f"computing alone: {ours.computing(3):.3f} s a round", file=sys.stderr)
    return found


def best_time_to_accuracy(place: Field, quick: bool) -> Case:
    job = Job(2, SMALL if quick else LARGE, LEARNING_RATE)
    with place.ours(job, **BEST) as side:
        ours = time_to(side, "ours")
    with place.stock(job) as side:
        theirs = time_to(side, "theirs")
    return Case(ours, theirs, "s")


def shaper_fidelity(place: Field, quick: bool) -> Case:
    job = Job(2, SMALL if quick else LARGE, LEARNING_RATE)
    with place.ours(job) as real, place.ours(job, shaped=True) as shaped:
        return race(shaped, real, QUICK_TURNS if quick else TURNS)


CASES: dict[str, Callable[[Field, bool], Case]] = {
    "tiers_bytes": tiers_bytes,
    "vanilla_iteration": vanilla_iteration,
    "best_time_to_accuracy": best_time_to_accuracy,
    "shaper_fidelity": shaper_fidelity,
}
ALONE: dict[str, Callable[[bool], dict[str, Case]]] = {name: partial(run, names=[name]) for name in CASES}


def race(ours: Side, theirs: Side, turns: int, steps: int = 1) -> Case:
    """Medians over the turns; the first turn of each side doesn't count."""
    times: dict[Side, list[float]] = {ours: [], theirs: []}
    for turn in range(turns + 1):
        for side in (ours, theirs):
            seconds = side.steps(steps)["seconds"] / steps
            if turn:
                times[side].append(seconds)
    for name, side in (("ours", ours), ("theirs", theirs)):
        print(f"  {name}: {min(times[side]):.3f} to {max(times[side]):.3f} s a round", file=sys.stderr)
    return Case(statistics.median(times[ours]), statistics.median(times[theirs]), "s/round")


def time_to(side: Side, name: str) -> float:
    """Seconds of training, evaluations left out; the first step, with which the side got ready, is not in it."""
    seconds, steps = 0.0, 1
    while (accuracy := side.accuracy()) < GOAL:
        if steps >= MOST_STEPS:
            raise RuntimeError(f"{name}: {accuracy:.1%} after {steps} steps, wanted were {GOAL:.0%}")
        seconds += side.steps(1)["seconds"]
        steps += 1
    print(f"  {name}: {steps} steps, {seconds:.1f} s to {accuracy:.1%}", file=sys.stderr, flush=True)
    return seconds
