"""wan: this project against MXNet's own dist_sync over one emulated WAN, in turns A-B-A-B. 2 parties and a central one,
each with its own access link of 100 Mbit/s, 50 ms round trip, in network namespaces with a packet router between them
(queues of one bandwidth-delay product). Same model (a CNN with 5 million parameters, in tensors of which none is most
of it), data, batches, optimizer (Adam) and worker code on both sides; bytes as the kernel counts them at the parties'
WAN devices. Needs root.

MXNet goes its faster way: `push` and `pull` of each tensor, or `pushpull`. A pull waits behind the worker's own pushes
on their connection, so by the first way the server's link carries all gradients and then all weights (4 x 20 MB, 6.4 s,
each); by the second they overlap in part. One congestion control for both sides, named in the output: bbr, with which
MXNet is at its best (over cubic its four flows meet at the server's link again and again, and lose).

tiers_bytes            WAN bytes of a round, 4 workers a party: two tiers against MXNet's one
vanilla_iteration      seconds a round, 2 workers a party, nothing compressed
best_time_to_accuracy  seconds of training until 90 % of the test set are right for the first time; ours with BEST;
                       the mean of three seeds, a quarter of an hour
shaper_fidelity        seconds a round of ours: over the router, and over the user-space shaper; with scheduler=p3.
                       What is on its way stays within the links' queues, so TCP loses nothing
deep_fidelity          the same with scheduler=fifo
vanilla_R_D, best_R_D  seconds a round of a small model (0.18 million) at R Mbit/s and a round trip of D, in CURVE
                       (--case curve)
vanilla_loopback, best_loopback   with the large model and no WAN at all: a second tier and compression can only cost
                       (--case loopback)
"""

import contextlib
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from geomx.bench import Case
from geomx.bench.wan_sides import Job, Ours, Side, Stock, wan_bytes
from geomx.bench.wan_worker import WAYS
from geomx.config import Hips
from geomx.config.network import Network
from geomx.errors import ConfigError
from geomx.wan import selftest
from geomx.wan.plan import Wan, resolve
from geomx.wan.probe import self_test
from geomx.wan.router import Router, missing

RATE_MBIT, DELAY_MS = 100.0, 25.0
CURVE = ((10.0, 50.0), (100.0, 10.0))  # Mbit/s, one way ms
CONGESTION = "bbr"
LARGE, SMALL = "large", "seed"  # 5.0 and 0.18 million parameters
LEARNING_RATE = 0.001
GOALS = (0.80, 0.85, 0.90)  # all are told, the last one is the case
SEEDS = (1, 2, 3)
MOST_STEPS = 200
TURNS, QUICK_TURNS, LOOPBACK_TURNS = 5, 2, 15
PARTIES = Hips(parties=[{"name": "a"}, {"name": "b"}])
# Sparser than this, Adam takes so many more steps that rounds of a shorter time don't make up for it; the first ones
# decide most, and the small convolutions cost nothing as halves. The optimizer is on the workers: sums stay sparse.
BEST: dict[str, Any] = {
    "compression": {
        "name": "mpq",
        "ratio": 0.1,
        "value_bits": 8,
        "warmup_rounds": 10,
        "warmup_ratio": 0.5,
        "size_lower_bound": 20_000,
    },
    "sync": {"name": "fsa", "optimizer": {"name": "adam", "where": "worker", "learning_rate": LEARNING_RATE}},
}


def run(quick: bool) -> dict[str, Case]:
    """quick: the small model, few turns. Raises RuntimeError if a side fails, ConfigError where there can be no WAN."""
    if why := missing():
        raise ConfigError(f"bench wan: {why}")
    found: dict[str, Case] = {}

    def keep(name: str, case: Case) -> None:
        found[name] = case
        say(f"{name}: ours {case.ours:.4g}, theirs {case.theirs:.4g} {case.unit}: {case.ratio:.2f} times better")

    with place(RATE_MBIT, DELAY_MS) as there:
        for name, case in CASES.items():
            keep(name, case(there, quick))
    for name, measured in {**curve(quick), **loopback(quick)}.items():
        keep(name, measured)
    return found


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@dataclass
class Place:
    """An emulated WAN, and ports that no two clusters share."""

    network: Network
    wan: Wan
    router: Router
    ports: Iterator[int] = field(default_factory=lambda: itertools.count(9100, 20))
    way: str = WAYS[1]  # MXNet's faster one

    @contextlib.contextmanager
    def stock(self, job: Job) -> Iterator[Side]:
        with running(Stock(self.router, self.wan, job, next(self.ports))) as side:
            side.way = self.way
            yield side

    @contextlib.contextmanager
    def ours(self, job: Job, shaped: bool = False, **groups: Any) -> Iterator[Side]:
        router = None if shaped else self.router
        with running(Ours(router, self.network, self.wan, job, next(self.ports), **groups)) as side:
            yield side

    def bytes_of(self, side: Side, steps: int) -> float:
        """A round's, in steady state."""
        before = wan_bytes(self.router, self.wan.parties[:-1])
        side.steps(steps)
        return (wan_bytes(self.router, self.wan.parties[:-1]) - before) / steps

    def choose_way(self, side: Side) -> None:
        tell_ways(side.choose_way())
        self.way = side.way

    def introduce(self) -> None:
        say(f"{self.network.rate_mbit:g} Mbit/s access links, {2 * self.network.delay_ms:g} ms round trip, "
            f"TCP {self.router.congestion}, queues of {self.wan.queue_bytes[0] / 1e3:.0f} kB")  # fmt: skip
        for row in self_test(self.router, self.wan):
            say(f"network: {selftest.text(row)}")

    def conclude(self) -> None:
        counted = self.router.counters()
        say(f"router: {counted['cpu_s'] / counted['wall_s']:.1%} of a core")


@contextlib.contextmanager
def running(side: Side) -> Iterator[Side]:
    try:
        side.ready()
        yield side
    finally:
        side.stop()


@contextlib.contextmanager
def place(rate_mbit: float, delay_ms: float, congestion: str = CONGESTION) -> Iterator[Place]:
    network = Network(rate_mbit=rate_mbit, delay_ms=delay_ms)
    wan = resolve(network, PARTIES)
    router = Router(wan, congestion, 1)
    try:
        made = Place(network, wan, router)
        made.introduce()
        yield made
        made.conclude()
    finally:
        router.close()


def tiers_bytes(there: Place, quick: bool) -> Case:
    job = Job(4, SMALL if quick else LARGE, LEARNING_RATE)
    with there.ours(job) as side:
        ours = there.bytes_of(side, 2)
    with there.stock(job) as side:
        theirs = there.bytes_of(side, 1)
    return Case(ours, theirs, "bytes/round")


def vanilla_iteration(there: Place, quick: bool) -> Case:
    job = Job(2, SMALL if quick else LARGE, LEARNING_RATE)
    with there.ours(job) as ours, there.stock(job) as theirs:
        there.choose_way(theirs)
        found = race(ours, theirs, QUICK_TURNS if quick else TURNS)
        tell_computing(ours, found)
    return found


def best_time_to_accuracy(there: Place, quick: bool) -> Case:
    ours, theirs = [], []
    for seed in SEEDS[:1] if quick else SEEDS:
        job = Job(2, SMALL if quick else LARGE, LEARNING_RATE, seed)
        with there.ours(job, **BEST) as side:
            ours.append(time_to(side, f"ours, seed {seed}"))
        with there.stock(job) as side:
            theirs.append(time_to(side, f"theirs, seed {seed}"))
    return Case(statistics.mean(ours), statistics.mean(theirs), "s")


def fidelity(scheduler: str, there: Place, quick: bool) -> Case:
    job = Job(2, SMALL if quick else LARGE, LEARNING_RATE)
    chosen: dict[str, Any] = {scheduler: {}}
    with there.ours(job, scheduler=chosen) as real, there.ours(job, shaped=True, scheduler=chosen) as shaped:
        return race(shaped, real, QUICK_TURNS if quick else TURNS)


CASES: dict[str, Callable[[Place, bool], Case]] = {
    "tiers_bytes": tiers_bytes,
    "vanilla_iteration": vanilla_iteration,
    "best_time_to_accuracy": best_time_to_accuracy,
    "shaper_fidelity": partial(fidelity, "p3"),
    "deep_fidelity": partial(fidelity, "fifo"),
}


def alone(name: str, quick: bool) -> dict[str, Case]:
    if why := missing():
        raise ConfigError(f"bench wan: {why}")
    with place(RATE_MBIT, DELAY_MS) as there:
        return {name: CASES[name](there, quick)}


def curve(quick: bool) -> dict[str, Case]:
    """Both of ours against MXNet at other rates and delays, with the small model."""
    if why := missing():
        raise ConfigError(f"bench wan: {why}")
    job, found = Job(2, SMALL, LEARNING_RATE), {}
    for rate_mbit, delay_ms in CURVE[-1:] if quick else CURVE:
        at = f"{rate_mbit:g}mbit_{2 * delay_ms:g}ms"
        with place(rate_mbit, delay_ms) as there, there.ours(job) as vanilla, there.ours(job, **BEST) as best, \
                there.stock(job) as theirs:  # fmt: skip
            there.choose_way(theirs)
            found[f"vanilla_{at}"] = race(vanilla, theirs, TURNS)
            found[f"best_{at}"] = race(best, theirs, TURNS)
            tell_computing(vanilla, found[f"vanilla_{at}"])
    return found


def loopback(quick: bool) -> dict[str, Case]:
    """Needs no root: there is no network to emulate."""
    network = Network()
    job, wan = Job(2, SMALL if quick else LARGE, LEARNING_RATE), resolve(network, PARTIES)
    with running(Ours(None, network, wan, job)) as vanilla, running(Ours(None, network, wan, job, **BEST)) as best, \
            running(Stock(None, wan, job)) as theirs:  # fmt: skip
        tell_ways(theirs.choose_way())
        turns = QUICK_TURNS if quick else LOOPBACK_TURNS
        return {"vanilla_loopback": race(vanilla, theirs, turns), "best_loopback": race(best, theirs, turns)}


ALONE: dict[str, Callable[[bool], dict[str, Case]]] = {
    **{name: partial(alone, name) for name in CASES}, "curve": curve, "loopback": loopback
}  # fmt: skip


def race(ours: Side, theirs: Side, turns: int) -> Case:
    """Medians over the turns."""
    times: dict[Side, list[float]] = {ours: [], theirs: []}
    for _ in range(turns):
        for side in (ours, theirs):
            times[side].append(side.steps(1))
    for name, side in (("ours", ours), ("theirs", theirs)):
        say(f"  {name}: {min(times[side]):.3f} to {max(times[side]):.3f} s a round")
    return Case(statistics.median(times[ours]), statistics.median(times[theirs]), "s/round")


def tell_ways(found: Mapping[str, float]) -> None:
    say("  MXNet: " + ", ".join(f"{way}: {seconds:.3f} s" for way, seconds in found.items()))


def tell_computing(side: Side, found: Case) -> None:
    """What no way of sending can beat."""
    seconds = side.computing(3)
    say(f"  computing alone: {seconds:.3f} s a round, {seconds / found.theirs:.1%} of theirs, "
        f"{seconds / found.ours:.1%} of ours")  # fmt: skip


def time_to(side: Side, name: str) -> float:
    """Seconds of training until the last goal is reached for the first time, evaluations left out; the first step, with
    which the side got ready, is not in it."""
    seconds, steps, goals = 0.0, 1, list(GOALS)
    while True:
        accuracy = side.accuracy()
        while goals and accuracy >= goals[0]:
            say(f"  {name}: {goals.pop(0):.0%} after {steps} steps, {seconds:.1f} s")
        if not goals:
            return seconds
        if steps >= MOST_STEPS:
            raise RuntimeError(f"{name}: {accuracy:.1%} after {steps} steps, wanted were {goals[0]:.0%}")
        seconds += side.steps(1)
        steps += 1
