"""What the user sees while a run goes on: a live table in a terminal, a line every few seconds elsewhere."""

import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

from geomx.launch.ledger import Ledger
from geomx.units import size

log = logging.getLogger("geomx")
LINE_EVERY_S = 3.0
LIVE_EVERY_S = 0.25


class Plain:
    """Lines of a log, of a pipe, of a terminal that can't do more."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + LINE_EVERY_S
        self._told = 0

    def update(self, ledger: Ledger, workers: Mapping[str, str]) -> None:
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + LINE_EVERY_S
        if (step := ledger.last_step()) > self._told:
            self._told = step
            log.info(line(ledger))

    def close(self) -> None:
        """Nothing to put back."""


class Live:
    """A table that stays at the bottom of the terminal; log lines scroll above it."""

    def __init__(self) -> None:
        from rich.live import Live as RichLive

        self._live = RichLive(refresh_per_second=4, transient=True)
        self._next_s = 0.0
        self._live.start()
        self._streams = _redirected()

    def update(self, ledger: Ledger, workers: Mapping[str, str]) -> None:
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + LIVE_EVERY_S
        self._live.update(_table(ledger, workers))

    def close(self) -> None:
        for handler, stream in self._streams:
            handler.setStream(stream)
        self._live.stop()


def display(kind: str) -> Plain | Live:
    """kind: live, plain, or auto, which is live in a terminal."""
    live = kind == "live" or (kind == "auto" and sys.stdout.isatty())
    return Live() if live else Plain()


def line(ledger: Ledger) -> str:
    """'round 120  loss 0.1234  accuracy 0.9531  wan 12.3 MB  lan 24.6 MB'"""
    row = ledger.last
    words = [f"round {ledger.last_step()}"]
    words += [f"{name} {row[name]:.4f}" for name in ("loss", "accuracy") if name in row]
    words += [f"{tier} {size(_tier_bytes(ledger, tier))}" for tier in ("wan", "lan")]
    return "  ".join(words)


def _tier_bytes(ledger: Ledger, tier: str) -> float:
    return ledger.sum(f"{tier}.up_bytes") + ledger.sum(f"{tier}.down_bytes")


def _table(ledger: Ledger, workers: Mapping[str, str]) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False)
    waiting = set(ledger.waiting())
    for name, title in workers.items():
        table.add_row(title, f"round {ledger.last_step(name)}", "waits" if name in waiting else "")
    return Group(Text(line(ledger), style="bold", no_wrap=True), table)


def _redirected() -> list[tuple[Any, Any]]:
    """Console handlers hold the stream that they were made with; below a live table they must use its own."""
    changed = []
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler:
            changed.append((handler, handler.setStream(sys.stdout)))
    return changed
