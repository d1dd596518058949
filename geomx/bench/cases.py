"""What the kv benchmark sends: the same tensors on both sides."""

import json
import sys
import time
from collections.abc import Callable

# case -> (number of tensors, elements of each)
CASES = {
    "large": (50, 512_000),  # 25.6 M float32
    "model": (20, 250_000),
    "small": (2000, 256),
    "tiny": (1, 1),
}
WORKERS_SUM = 3.0  # worker i pushes i + 1 everywhere; there are two


Ways = dict[str, Callable[[], None]]  # name of a way to go one round -> one round


def serve(prepare: Callable[[str], Ways]) -> None:
    """Answers commands on standard input until it ends. prepare(case) -> the ways, with their tensors declared."""
    cases: dict[str, Ways] = {}
    for line in sys.stdin:
        command = json.loads(line)
        try:
            case = command["case"]
            if case not in cases:
                cases[case] = prepare(case)
            answer: dict[str, float | str] = {"seconds": _timed(cases[case][command["way"]], command["rounds"])}
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), flush=True)


def _timed(one_round: Callable[[], None], rounds: int) -> float:
    began = time.perf_counter()
    for _ in range(rounds):
        one_round()
    return time.perf_counter() - began
