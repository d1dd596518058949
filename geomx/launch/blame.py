"""Who failed first, and the sentence that says so. Pure: told what came, with the times at which it came.

Who tells first is chance, so it decides least. What happened to a node itself counts before what others say; of the
latter, a sentence that begins with another node's title speaks of that node, and is followed to it.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass

from geomx.spec import NodeSpec, said_by

# A node that died or raised something of its own is the cause; what the others then say about it is not. Then: the
# join refused a node; a peer was found dead or the run ended by a message; a wait ended at its deadline.
OWN = ("died", "own", "config")
ORDER = {**dict.fromkeys(OWN, 0), "refused": 1, "peer": 2, "timeout": 3, "interrupted": 4}


@dataclass(frozen=True)
class Failure:
    node: str
    kind: str
    sentence: str
    at_s: float


class Blame:
    """Collects failures of one run. `place(node)`: what the run was waiting for from this node, as a clause."""

    def __init__(self, nodes: list[NodeSpec], place: Callable[[NodeSpec], str]) -> None:
        self._nodes = {n.name: n for n in nodes}
        self._place = place
        self._told: dict[str, Failure] = {}
        self._ended: dict[str, Failure] = {}
        self._codes: dict[str, int] = {}
        self._done: set[str] = set()

    def done(self, node: str) -> None:
        """It has told its result: ending with exit code 0 is no failure. May be told after `ended`."""
        self._done.add(node)

    def told(self, node: str, kind: str, sentence: str, at_s: float) -> None:
        """It has told why it can't go on. May be told after `ended`."""
        self._told[node] = Failure(node, kind if kind in ORDER else "own", sentence, at_s)

    def ended(self, node: str, code: int, at_s: float) -> None:
        """Its process has ended; without a word before or soon after, this is a failure of its own."""
        self._codes[node] = code
        self._ended[node] = Failure(node, "died", _ending(code), at_s)

    def since_s(self) -> float | None:
        """When the first failure was noticed; None: all is well as far as known."""
        return min((f.at_s for f in self._failures()), default=None)

    def sentence(self) -> str:
        """Role, party, what happened, what was waited for, which log to read."""
        failures = self._failures()
        name, cause = self._cause(failures)
        node = self._nodes[name]
        words = [self._said(node, cause), self._place(node)]
        if cause.kind == "died" and (witness := self._witness(name, failures)):
            words.append(f"{self._nodes[witness.node].title} says: {witness.sentence}")
        return "; ".join([*(w for w in words if w), f"its log: {node.log}"])

    def _cause(self, failures: list[Failure]) -> tuple[str, Failure]:
        """Who is to blame, and the failure that says so: its own, or another's where it says nothing itself."""
        by_node = {f.node: f for f in failures}
        spoken_of = {self._spoken_of(f) for f in failures}
        since_s = {f.sentence: min(g.at_s for g in failures if g.sentence == f.sentence) for f in failures}
        order = list(self._nodes)

        def rank(f: Failure) -> tuple[int, bool, float, bool, int]:
            """Of those that say the same, one that the sentence names, else the first of the run's nodes."""
            is_named = self._nodes[f.node].title in f.sentence
            return ORDER[f.kind], f.node not in spoken_of, since_s[f.sentence], not is_named, order.index(f.node)

        cause = min(failures, key=rank)
        name, seen = cause.node, {cause.node}
        while cause.kind not in OWN and (of := self._spoken_of(cause)) and of not in seen:
            name, cause = of, by_node.get(of, cause)
            seen.add(of)
        return name, cause

    def _spoken_of(self, failure: Failure) -> str | None:
        """Of which node a sentence speaks: the one with whose title it begins."""
        said = failure.sentence.removeprefix(f"{self._nodes[failure.node].title}: the connection to ")
        begins = (n.name for n in self._nodes.values() for t in _titles(n) if said.startswith((f"{t} ", f"{t}:")))
        return next(begins, None)

    def _said(self, node: NodeSpec, cause: Failure) -> str:
        if cause.kind == "died":
            return f"{node.title} {cause.sentence}"
        return cause.sentence if self._spoken_of(cause) == node.name else said_by(node.title, cause.sentence)

    def _witness(self, dead: str, failures: list[Failure]) -> Failure | None:
        said = [f for f in failures if f.kind in ("peer", "timeout")]
        return min(said, key=lambda f: (self._spoken_of(f) != dead, f.at_s), default=None)

    def _failures(self) -> list[Failure]:
        silent = [
            f for n, f in self._ended.items() if n not in self._told and (self._codes[n] != 0 or n not in self._done)
        ]
        return [*self._told.values(), *silent]


def _titles(node: NodeSpec) -> list[str]:
    """How the sentences of others call it: nodes know a scheduler by what it serves."""
    if node.role != "scheduler":
        return [node.title]
    return [node.title, "the scheduler of " + (f"party {node.party}" if node.lan else "the WAN")]


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code} before the run was over"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {-code} ({name})"
