"""kv: this core against MXNet's own `dist_sync`, one server and two workers on this machine, in turns A-B-A-B.

Each side uses its best public call. large: 25.6 M float32 in 50 tensors; small: 2,000 tensors of 256; tiny: one
number. large_tcp has our shared memory off; the others have it on, as it is by default.
"""

import contextlib
import statistics
import sys
from collections.abc import Iterator

from geomx.bench import Case
from geomx.bench.peers import Ours, Side, Stock

# case -> (what is sent, whether our shared memory is on, rounds in a turn)
RACES = {
    "large_tcp": ("large", False, 3),
    "large_local": ("large", True, 3),
    "small": ("small", True, 5),
    "tiny": ("tiny", True, 200),
}
TURNS, QUICK_TURNS = 9, 5


def run(quick: bool) -> dict[str, Case]:
    """Seconds a round. Raises RuntimeError if a side fails."""
    found: dict[str, Case] = {}
    with _sides() as (tcp, local, stock):
        for name, (sent, shared, rounds) in RACES.items():
            found[name] = _race(local if shared else tcp, stock, sent, 1 if quick and rounds < 10 else rounds,
                                QUICK_TURNS if quick else TURNS)  # fmt: skip
            print(f"{name}: ours {found[name].ours:.5f} s, theirs {found[name].theirs:.5f} s", file=sys.stderr)
    return found


def _race(ours: Side, theirs: Side, case: str, rounds: int, turns: int) -> Case:
    """Medians over the turns; the first turn of each side makes the tensors and doesn't count."""
    times: dict[Side, list[float]] = {ours: [], theirs: []}
    for turn in range(turns + 1):
        for side in (ours, theirs):
            seconds = side.seconds(case, rounds)
            if turn:
                times[side].append(seconds)
    return Case(statistics.median(times[ours]), statistics.median(times[theirs]), "s/round")


@contextlib.contextmanager
def _sides() -> Iterator[tuple[Side, Side, Side]]:
    with contextlib.ExitStack() as stack:
        sides: list[Side] = []
        for make in (lambda: Ours(local=False), lambda: Ours(local=True), Stock):
            sides.append(make())
            stack.callback(sides[-1].stop)
        yield sides[0], sides[1], sides[2]
