"""The same charts as PNG files, for papers and slides; needs matplotlib."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geomx.report.charts import Bars, Chart, Lines, Scatter

PALETTE = ("#2563a8", "#d9722e", "#3d8f5f", "#a8457c", "#7a6cc4", "#b38a1d", "#3a9aa8", "#7d7d7d")


def write(charts: Sequence[Chart], directory: Path) -> list[Path]:
    """One file for each; none without matplotlib."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return []
    made = []
    for chart in charts:
        tall = max(2.5, 0.35 * len(chart.rows) + 1.2) if isinstance(chart, Bars) else 4.2
        figure = Figure(figsize=(8, tall), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        _bars(axes, chart) if isinstance(chart, Bars) else _lines(axes, chart)
        axes.set_title(chart.title, loc="left")
        axes.set_xlabel(chart.x_label)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small")
        made.append(directory / f"{chart.name}.png")
        figure.savefig(made[-1], dpi=120)
    return made


def _lines(axes: Any, chart: Lines) -> None:
    axes.set_ylabel(chart.y_label)
    if chart.has_log_x:
        axes.set_xscale("log")
    for i, series in enumerate(chart.series):
        xs, ys = zip(*series.points, strict=True)
        colour = PALETTE[i % len(PALETTE)]
        if isinstance(chart, Scatter):
            around = [[ys[0] - series.low[0]], [series.high[0] - ys[0]]]
            axes.errorbar(xs, ys, around, fmt="o", color=colour, label=series.label)
        else:
            axes.plot(xs, ys, color=colour, marker=".", label=series.label)
            if series.low:
                axes.fill_between(xs, series.low, series.high, color=colour, alpha=0.2, linewidth=0)
    if isinstance(chart, Scatter):
        best = sorted(s.points[0] for s in chart.series if s.label in chart.front)
        axes.step(*zip(*best, strict=True), where="post", color="#999999", linestyle="--", zorder=0)
    axes.grid(axis="y", alpha=0.3)


def _bars(axes: Any, chart: Bars) -> None:
    labels = [label for label, _ in chart.rows]
    left = [0.0] * len(labels)
    for k, part in enumerate(chart.parts):
        values = [v[k] for _, v in chart.rows]
        axes.barh(labels, values, left=left, color=PALETTE[k % len(PALETTE)], label=part)
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
