"""One picture of a run: loss, accuracy and bytes over time."""

import json
import logging
from pathlib import Path
from typing import Any

FILE = "progress.png"


def draw(directory: Path) -> Path | None:
    """From a run directory's metrics.jsonl; None without rounds, or without matplotlib."""
    rows = read(directory / "metrics.jsonl")
    if not rows:
        return None
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(8, 6), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True)
    _learning(upper, rows)
    _traffic(lower, rows)
    figure.savefig(directory / FILE, dpi=110)
    return directory / FILE


def read(file: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl; a last line that was cut off is left out."""
    rows = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _column(rows: list[dict[str, Any]], name: str) -> tuple[list[float], list[float]]:
    """Times and values of the rows that have this figure."""
    known = [(row["time"], row[name]) for row in rows if row.get(name) is not None]
    return [t for t, _ in known], [v for _, v in known]


def _learning(axes: Any, rows: list[dict[str, Any]]) -> None:
    (lines,) = axes.plot(*_column(rows, "loss"), color="tab:blue", label="loss")
    axes.set_ylabel("loss")
    handles = [lines]
    times, values = _column(rows, "accuracy")
    if values:
        other = axes.twinx()
        handles += other.plot(times, values, color="tab:green", marker=".", label="accuracy")
        other.set_ylabel("accuracy")
        other.set_ylim(0, 1)
    axes.legend(handles=handles, loc="center right")


def _traffic(axes: Any, rows: list[dict[str, Any]]) -> None:
    for tier, style in (("wan", "-"), ("lan", "--")):
        for direction, color, width in (("up", "tab:orange", 4), ("down", "tab:purple", 1.5)):  # often the same line
            times, values = _column(rows, f"{tier}_{direction}_bytes")
            label = f"{tier.upper()} {direction}"
            axes.plot(times, [v / 1e6 for v in values], style, color=color, linewidth=width, label=label)
    axes.set_ylabel("MB so far")
    axes.set_xlabel("seconds")
    axes.legend(loc="upper left")
