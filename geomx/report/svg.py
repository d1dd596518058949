"""Charts as inline SVG. Colours and fonts are the page's, by class, so that they follow light and dark."""

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from geomx.report.charts import Bars, Chart, Lines, Scatter, Series

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 12, 46
COLOURS = 8
BAR, GAP = 22, 9


def draw(chart: Chart) -> str:
    if isinstance(chart, Bars):
        return _bars(chart)
    return _lines(chart)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that cover low..high."""
    span = high - low or abs(high) or 1.0
    raw = span / about
    unit = 10 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, max(last, first + 1) + 1)]


def number(value: float) -> str:
    """As short as it can be said: 0.5, 12, 1,500."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:.4g}"


class _Frame:
    """Axes, and where a value lies in them."""

    def __init__(self, chart: Lines) -> None:
        xs = [x for s in chart.series for x, _ in s.points]
        ys = [y for s in chart.series for y in [*(p[1] for p in s.points), *s.low, *s.high]]
        self.is_log = chart.has_log_x
        if self.is_log:
            self.x_ticks = [10.0**i for i in range(math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs))) + 1)]
        else:
            self.x_ticks = ticks(0.0 if min(xs) >= 0 else min(xs), max(xs))
        self.y_ticks = ticks(min(ys), max(ys))

    def x(self, value: float) -> float:
        low, high = self.x_ticks[0], self.x_ticks[-1]
        if self.is_log:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_ticks[0], self.y_ticks[-1]
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def _lines(chart: Lines) -> str:
    frame = _Frame(chart)
    inside = [_axes(frame, chart)]
    if isinstance(chart, Scatter):
        inside += [_front(chart, frame), *(_dot(s, i, frame) for i, s in enumerate(chart.series))]
    else:
        inside += [_curve(s, i, frame) for i, s in enumerate(chart.series)]
    return _svg(chart.title, WIDTH, HEIGHT, inside) + _legend([s.label for s in chart.series])


def _axes(frame: _Frame, chart: Lines) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    found = []
    for value in frame.y_ticks:
        y = frame.y(value)
        found.append(
            f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>'
        )
    for value in frame.x_ticks:
        x = frame.x(value)
        found.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
            f'<text class="tick" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{number(value)}</text>'
        )
    middle = (TOP + bottom) / 2
    found.append(
        f'<text class="axis" x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{escape(chart.x_label)}</text>"
        f'<text class="axis" transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">'
        f"{escape(chart.y_label)}</text>"
    )
    return "".join(found)


def _curve(series: Series, i: int, frame: _Frame) -> str:
    at = [(frame.x(x), frame.y(y)) for x, y in series.points]
    colour = i % COLOURS
    found = ""
    if series.low:
        upper = [(x, frame.y(h)) for (x, _), h in zip(at, series.high, strict=True)]
        lower = [(x, frame.y(v)) for (x, _), v in zip(at, series.low, strict=True)]
        found += f'<polygon class="fill c{colour} band" points="{_points([*upper, *reversed(lower)])}"/>'
    found += f'<polyline class="line c{colour}" points="{_points(at)}"/>'
    for (x, y), point in zip(at, series.points, strict=True):
        found += (
            f'<circle class="fill c{colour}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"><title>{escape(series.label)}: '
            f"{number(point[0])}, {number(point[1])}</title></circle>"
        )
    return found


def _dot(series: Series, i: int, frame: _Frame) -> str:
    (point,) = series.points
    x, y, colour = frame.x(point[0]), frame.y(point[1]), i % COLOURS
    low, high = (frame.y(v) for v in (series.low[0], series.high[0]))
    return (
        f'<line class="line c{colour}" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
        f'<circle class="fill c{colour}" cx="{x:.1f}" cy="{y:.1f}" r="6"><title>{escape(series.label)}: '
        f"{number(point[0])}, {number(point[1])}</title></circle>"
    )


def _front(chart: Scatter, frame: _Frame) -> str:
    """A staircase: what is known to be reachable."""
    best = sorted(s.points[0] for s in chart.series if s.label in chart.front)
    at = [(frame.x(x), frame.y(y)) for x, y in best]
    steps = at[:1]
    for (_, y), (nx, ny) in pairwise(at):
        steps += [(nx, y), (nx, ny)]
    return f'<polyline class="front" points="{_points(steps)}"/>'


def _bars(chart: Bars) -> str:
    wide = 200
    height = TOP + len(chart.rows) * (BAR + GAP) + BOTTOM
    values = ticks(0.0, max(sum(v) for _, v in chart.rows))
    scale = (WIDTH - wide - RIGHT - 24) / values[-1]
    bottom = height - BOTTOM
    inside = []
    for value in values:
        x = wide + value * scale
        inside.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
            f'<text class="tick" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{number(value)}</text>'
        )
    for i, (label, parts) in enumerate(chart.rows):
        y, x = TOP + i * (BAR + GAP), float(wide)
        inside.append(
            f'<text class="name" x="{wide - 8}" y="{y + BAR * 0.7:.1f}" text-anchor="end">'
            f"{escape(_short(label))}<title>{escape(label)}</title></text>"
        )
        for k, value in enumerate(parts):
            inside.append(
                f'<rect class="fill c{k % COLOURS}" x="{x:.1f}" y="{y}" width="{value * scale:.1f}" '
                f'height="{BAR}"><title>{escape(label)}, {escape(chart.parts[k])}: {number(value)}</title>'
                "</rect>"
            )
            x += value * scale
    inside.append(
        f'<text class="axis" x="{(wide + WIDTH - RIGHT) / 2}" y="{height - 6}" text-anchor="middle">'
        f"{escape(chart.x_label)}</text>"
    )
    return _svg(chart.title, WIDTH, height, inside) + _legend(chart.parts)


def _short(label: str) -> str:
    return label if len(label) <= 28 else f"…{label[-27:]}"


def _points(at: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in at)


def _svg(title: str, width: int, height: int, inside: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title, quote=True)}">'
        f"{''.join(inside)}</svg>"
    )


def _legend(labels: Sequence[str]) -> str:
    if len(labels) < 2:
        return ""
    items = "".join(f'<li><i class="swatch c{i % COLOURS}"></i>{escape(label)}</li>' for i, label in enumerate(labels))
    return f'<ul class="legend">{items}</ul>'
