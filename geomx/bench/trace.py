"""trace: what a timeline of every round costs, against the same rounds without one, in turns A-B-A-B.

A party of two workers over its local server and a global server, a process each, without a shaped network: nothing
hides the cost. ours is with `trace.rounds` over all rounds, theirs without. tracing_cost: a model of 5 M float32 in 20
tensors; tracing_cost_small: 2,000 tensors of 256, where a span costs most beside what it describes.
"""

import contextlib
import dataclasses
import statistics
import sys
from collections.abc import Mapping
from typing import Any

from geomx.bench import Case
from geomx.bench.peers import WORKERS, Peer, Side
from geomx.config import load
from geomx.launch.cluster import WAN, cluster
from geomx.spec import NodeSpec
from geomx.testing.ports import kept_port

CASES = {"tracing_cost": ("model", 10), "tracing_cost_small": ("small", 3)}  # what is sent, rounds in a turn
TURNS, QUICK_TURNS = 21, 5
ALL = {"rounds": [1, 1_000_000_000], "max_spans": 5_000_000}


def run(quick: bool) -> dict[str, Case]:
    """Seconds a round, medians. Raises RuntimeError if a side fails."""
    found: dict[str, Case] = {}
    with contextlib.ExitStack() as stack:
        traced, plain = TwoTiers(ALL), TwoTiers({})
        stack.callback(traced.stop)
        stack.callback(plain.stop)
        for name, (sent, rounds) in CASES.items():
            found[name] = _race(traced, plain, sent, rounds, QUICK_TURNS if quick else TURNS)
            slower = found[name].ours / found[name].theirs - 1
            print(f"{name}: {slower:+.2%} time with a timeline", file=sys.stderr)
    return found


def _race(traced: Side, plain: Side, sent: str, rounds: int, turns: int) -> Case:
    """The median of the turns' quotients stands for the ratio: what else the machine does hits both sides of a turn.
    The first turn makes the tensors; who begins changes from turn to turn."""
    times: list[tuple[float, float]] = []
    for turn in range(turns + 1):
        if turn % 2:
            theirs = plain.seconds(sent, rounds)
            ours = traced.seconds(sent, rounds)
        else:
            ours = traced.seconds(sent, rounds)
            theirs = plain.seconds(sent, rounds)
        times.append((ours, theirs))
    plain_s = statistics.median(b for _, b in times[1:])
    return Case(plain_s * statistics.median(a / b for a, b in times[1:]), plain_s, "s/round")


class TwoTiers(Side):
    """One party and the global server. given: the config's `trace`."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__()
        topology = {"name": "hips", "parties": 1, "workers": WORKERS}
        sums = {"name": "fsa", "optimizer": {"where": "worker"}}
        config = load({"trace": given, "topology": topology, "sync": sums})
        planned = cluster(config, token="", control="", host=lambda _: "127.0.0.1", log=lambda _: "")
        ports = {domain: kept_port() for domain in planned.schedulers}
        for domain, node in planned.schedulers.items():
            self.others.append(_peer(_listening(node, domain, ports[domain])))
        for node in planned.located(ports):
            (self.workers if node.role == "worker" and not node.observes else self.others).append(_peer(node))


def _listening(node: NodeSpec, domain: str, port: int) -> NodeSpec:
    """A scheduler on a port that the others are told before it runs."""
    given = node.wan if domain == WAN else node.lan
    assert given is not None
    there = dataclasses.replace(given, scheduler_port=port)
    moved = dataclasses.replace(node, port=port)
    return dataclasses.replace(moved, wan=there) if domain == WAN else dataclasses.replace(moved, lan=there)


def _peer(node: NodeSpec) -> Peer:
    module = "geomx.bench.our_worker" if node.role == "worker" and not node.observes else "geomx.node"
    return Peer(node.title, ["-m", module, *(["-"] if module == "geomx.node" else [])], {}, node.to_json())
