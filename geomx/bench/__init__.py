"""Benchmarks: `python -m geomx.bench NAME` prints a table for people and, as its last line, one JSON object.

A benchmark is a function `run(quick) -> {case: Case}`. A plugin brings its own as the entry point `bench.NAME` of the
group `geomx.plugins`.
"""

from collections.abc import Callable
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
        return self.theirs / self.ours if self.better == "less" else self.ours / self.theirs

    def row(self) -> dict[str, Any]:
        return {"ratio": self.ratio, "ours": self.ours, "theirs": self.theirs, "unit": self.unit}


Run = Callable[[bool], dict[str, Case]]


def names() -> list[str]:
    """All benchmarks that are installed."""
    return sorted({*BUILT_IN, *(name for group, name in offers() if group == "bench")})


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
