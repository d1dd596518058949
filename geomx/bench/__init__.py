"""Benchmarks: `python -m geomx.bench NAME` prints a table for people and, as its last line, one JSON object.

A benchmark is a function `run(quick) -> {case: Case}`. A plugin brings its own as the entry point `bench.NAME` of the
group `geomx.plugins`. Parts of it that can run by themselves (`--case`) are in a dict `ALONE` of the same module: by
name, functions like `run`.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from geomx.errors import ConfigError
from geomx.plugins import offers

BUILT_IN = {name: f"geomx.bench.{name}:run" for name in ("kv", "codec", "traffic", "trace", "accuracy", "wan")}


@dataclass(frozen=True)
class Case:
    """ours and theirs in `unit`; ratio says how many times better ours is."""

    ours: float
    theirs: float
    unit: str
    better: str = "less"  # "less": times and bytes; "more": rates and shares

    @property
    def ratio(self) -> float:
        if self.ours == self.theirs:  # both 0, too
            return 1.0
        return self.theirs / self.ours if self.better == "less" else self.ours / self.theirs

    def row(self) -> dict[str, Any]:
        return {"ratio": self.ratio, "ours": self.ours, "theirs": self.theirs, "unit": self.unit}


Run = Callable[[bool], dict[str, Case]]


def names() -> list[str]:
    """All benchmarks that are installed."""
    return sorted({*BUILT_IN, *(name for group, name in offers() if group == "bench")})


def cases_of(run: Run) -> Mapping[str, Run]:
    """What of it can run by itself."""
    found: Mapping[str, Run] = getattr(sys.modules.get(run.__module__), "ALONE", {})
    return found


def only(name: str, run: Run, wanted: Sequence[str]) -> Run:
    """Some cases of a benchmark, in its order. Raises ConfigError for those that it doesn't have."""
    there = cases_of(run)
    if unknown := [case for case in wanted if case not in there]:
        known = f"there are: {', '.join(there)}" if there else "it only runs whole"
        raise ConfigError(f"bench {name}: case {unknown[0]!r} given, {known}")
    chosen = [there[case] for case in there if case in wanted]
    return lambda quick: {case: figures for part in chosen for case, figures in part(quick).items()}


def find(name: str) -> Run:
    """The function of a benchmark. Raises ConfigError for an unknown one."""
    brought = offers().get(("bench", name))
    if brought:
        found: Run = brought[0].load()
        return found
    if name not in BUILT_IN:
        raise ConfigError(f"bench: {name!r} given, there are: {', '.join(names())}")
    module, _, attribute = BUILT_IN[name].partition(":")
    built_in: Run = getattr(import_module(module), attribute)
    return built_in
