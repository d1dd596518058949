"""How well an engine makes the links that were asked for; printed beside each result and kept in summary.json."""

from dataclasses import dataclass
from typing import Any

from geomx.wan.plan import Wan

RATE_WITHIN = 0.05
DELAY_WITHIN_US = 2000.0
LOSS_WITHIN = 0.10


@dataclass(frozen=True)
class Expected:
    """Of one way; bytes_per_s 0: not limited."""

    bytes_per_s: float
    delay_us: float
    loss: float
    jitter_us: float = 0.0

    @classmethod
    def of(cls, wan: Wan, a: str, b: str) -> "Expected":
        """When the run begins. Delay is half of a round trip."""
        there, back = wan.path(a, b), wan.path(b, a)
        if wan.trace:
            return cls(wan.trace[0].bytes_per_s, wan.trace[0].delay_us, wan.trace[0].loss)
        return cls(wan.rate(a, b), (there.delay_us + back.delay_us) / 2, there.loss,
                   max(there.jitter_us, back.jitter_us))  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """loss: None where the engine has none to show."""

    bytes_per_s: float
    delay_us: float
    loss: float | None


def report(a: str, b: str, expected: Expected, measured: Measured) -> dict[str, Any]:
    """One line of the self-test, JSON."""
    row: dict[str, Any] = {"from": a, "to": b, "delay_ms": [expected.delay_us / 1e3, measured.delay_us / 1e3]}
    within_us = DELAY_WITHIN_US + expected.jitter_us / 2  # the median of a few round trips still sways by it
    well = abs(measured.delay_us - expected.delay_us) <= within_us
    if expected.bytes_per_s:
        row["rate_mbit"] = [expected.bytes_per_s * 8e-6, measured.bytes_per_s * 8e-6]
        well = well and abs(measured.bytes_per_s / expected.bytes_per_s - 1) <= RATE_WITHIN
    if expected.loss and measured.loss is not None:
        row["loss"] = [expected.loss, measured.loss]
        well = well and abs(measured.loss / expected.loss - 1) <= LOSS_WITHIN
    return {**row, "ok": well}


def text(row: dict[str, Any]) -> str:
    """'a -> central: 99.2 of 100 Mbit/s, 25.3 of 25 ms'"""
    words = []
    if "rate_mbit" in row:
        words.append(f"{row['rate_mbit'][1]:.4g} of {row['rate_mbit'][0]:.4g} Mbit/s")
    words.append(f"{row['delay_ms'][1]:.2f} of {row['delay_ms'][0]:.4g} ms one way")
    if "loss" in row:
        words.append(f"{row['loss'][1]:.4f} of {row['loss'][0]:.4g} lost")
    return f"{row['from']} -> {row['to']}: {', '.join(words)}" + ("" if row["ok"] else "; NOT AS ASKED FOR")
