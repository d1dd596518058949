"""Who failed first, and the sentence that says so. Pure: told what came, with the times at which it came."""

import signal
from collections.abc import Callable
from dataclasses import dataclass

from geomx.spec import NodeSpec, said_by

# A node that died or raised something of its own is the cause; what the others then say about it is not. Then: the
# join refused a node; a peer was found dead or the run ended by a message; a wait ended at its deadline.
ORDER = {"died": 0, "own": 0, "config": 0, "refused": 1, "peer": 2, "timeout": 3, "interrupted": 4}


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
        first, *others = sorted(self._failures(), key=lambda f: (ORDER[f.kind], f.at_s))
        node = self._nodes[first.node]
        words = [f"{node.title} {first.sentence}" if first.kind == "died" else said_by(node.title, first.sentence)]
        words.append(self._place(node))
        if first.kind == "died" and (witness := next((f for f in others if f.kind in ("peer", "timeout")), None)):
            words.append(f"{self._nodes[witness.node].title} says: {witness.sentence}")
        return "; ".join([*(w for w in words if w), f"its log: {node.log}"])

    def _failures(self) -> list[Failure]:
        silent = [
            f for n, f in self._ended.items() if n not in self._told and (self._codes[n] != 0 or n not in self._done)
        ]
        return [*self._told.values(), *silent]


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code} before the run was over"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {-code} ({name})"
