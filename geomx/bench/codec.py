"""codec: the core's kernels on one core of this machine, each against what the memory allows."""

import statistics
import time
from collections.abc import Callable

import numpy as np

from geomx.bench import Case

ELEMENTS = 25_600_000
TURNS, QUICK_TURNS = 15, 7


def run(quick: bool) -> dict[str, Case]:
    """fp16_encode: float32 to float16, against memcpy of the same input."""
    from geomx import _core

    values = np.random.default_rng(1).standard_normal(ELEMENTS, np.float32)
    halves, copy = np.empty(ELEMENTS, np.float16), np.empty(ELEMENTS, np.float32)
    pair = (lambda: _core.kernel("f32_to_f16", values, halves), lambda: np.copyto(copy, values))
    ours, theirs = _in_turns(pair, QUICK_TURNS if quick else TURNS)
    return {"fp16_encode": Case(ours, theirs, "s")}


def _in_turns(pair: tuple[Callable[[], None], Callable[[], None]], turns: int) -> list[float]:
    times: list[list[float]] = [[], []]
    for turn in range(turns + 1):
        for side, call in enumerate(pair):
            began = time.perf_counter()
            call()
            if turn:
                times[side].append(time.perf_counter() - began)
    return [statistics.median(t) for t in times]
