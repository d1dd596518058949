"""What a report draws, as data: the same charts become SVG in the page and PNG files beside it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from geomx.report.runs import Group, Run

MOST_KEYS = 12
Point = tuple[float, float]


@dataclass
class Series:
    """Points in order. low and high: the spread around each y, over seeds."""

    label: str
    points: list[Point]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)


@dataclass
class Lines:
    name: str  # of its file
    title: str
    x_label: str
    y_label: str
    series: list[Series]
    note: str = ""

    @property
    def has_log_x(self) -> bool:
        """Where one series would be squeezed into a corner otherwise."""
        ends = [s.points[-1][0] for s in self.series]
        return min(x for s in self.series for x, _ in s.points) > 0 and max(ends) > 20 * min(ends)


@dataclass
class Scatter(Lines):
    """Each series is one point. front: labels of those that no other beats in both."""

    front: list[str] = field(default_factory=list)


@dataclass
class Bars:
    """Horizontal, stacked. rows: (label, a value for each part)."""

    name: str
    title: str
    x_label: str
    parts: list[str]
    rows: list[tuple[str, list[float]]]
    note: str = ""


Chart = Lines | Scatter | Bars


def charts(groups: Sequence[Group]) -> list[Chart]:
    """All that these groups have something to show for."""
    found: list[Chart] = [
        Lines("accuracy_over_time", "Accuracy over time", "seconds", "accuracy", _curves(groups, "time", 1.0)),
        Lines(
            "accuracy_over_wan",
            "Accuracy over WAN traffic",
            "MB between parties, both ways",
            "accuracy",
            _curves(groups, "wan", 1e-6),
        ),
    ]
    if len(groups) > 1:
        found.append(_pareto(groups))
    found.append(_time(groups))
    found += [_keys(group, i, len(groups) == 1) for i, group in enumerate(groups[:6])]
    return [c for c in found if (c.rows if isinstance(c, Bars) else c.series)]


def _curves(groups: Sequence[Group], x: str, scale: float) -> list[Series]:
    found = [_curve(g, x, scale) for g in groups]
    return [s for s in found if s.points]


def _curve(group: Group, x: str, scale: float) -> Series:
    """Means over seeds at the steps that all of them evaluated."""
    curves = [{step: (at * scale, y) for step, at, y in r.curve(x)} for r in group.runs]
    common = sorted(set.intersection(*(set(c) for c in curves))) if curves else []
    at = [[c[step] for c in curves] for step in common]
    points = [(sum(p[0] for p in ps) / len(ps), sum(p[1] for p in ps) / len(ps)) for ps in at]
    if len(curves) == 1:
        return Series(group.label, points)
    return Series(group.label, points, [min(p[1] for p in ps) for ps in at], [max(p[1] for p in ps) for ps in at])


def _pareto(groups: Sequence[Group]) -> Scatter:
    found = []
    for group in groups:
        if spread := group.spread("accuracy"):
            mean, low, high = spread
            found.append(Series(group.label, [(group.wan_bytes * 1e-6, mean)], [low], [high]))
    front = [s.label for s in found if not any(_beats(o.points[0], s.points[0]) for o in found)]
    return Scatter(
        "pareto",
        "Accuracy against WAN traffic",
        "MB between parties, both ways",
        "accuracy at the end",
        found,
        "The line joins those that no other beats in both; bars are the range over seeds.",
        front,
    )


def _beats(a: Point, b: Point) -> bool:
    return a != b and a[0] <= b[0] and a[1] >= b[1]


def _time(groups: Sequence[Group]) -> Bars:
    rows = [(g.label, seconds) for g in groups if sum(seconds := _seconds(g))]
    return Bars(
        "time",
        "Where the time goes",
        "seconds of a worker, mean",
        ["computes", "waits", "starts, evaluates, ends"],
        rows,
    )


def _seconds(group: Group) -> list[float]:
    each = [_of_worker(r) for r in group.runs]
    return [sum(column) / len(each) for column in zip(*each, strict=True)]


def _of_worker(run: Run) -> list[float]:
    workers = max(1, sum(1 for n in run.summary["nodes"] if n["role"] == "worker" and n["name"] != "master"))
    computes, waits = (run.summary["seconds_by"][what] / workers for what in ("compute", "wait"))
    return [computes, waits, max(0.0, run.summary["seconds"] - computes - waits)]


def _keys(group: Group, number: int, is_only: bool) -> Bars:
    by_key: dict[str, list[float]] = {}
    for run in group.runs:
        for row in run.sent:
            if row["tier"] == "wan" and row["direction"] in ("up", "down"):
                name = row["key"] or "(messages' headers)"
                values = by_key.setdefault(name, [0.0, 0.0, 0.0])
                values[row["direction"] == "down"] += row["payload_bytes"] * 1e-6 / len(group.runs)
                values[2] += row["framing_bytes"] * 1e-6 / len(group.runs)
    rows = sorted(by_key.items(), key=lambda item: -sum(item[1]))
    if len(rows) > MOST_KEYS:
        rest = [sum(column) for column in zip(*(v for _, v in rows[MOST_KEYS - 1 :]), strict=True)]
        rows = [*rows[: MOST_KEYS - 1], (f"{len(rows) - MOST_KEYS + 1} others", rest)]
    title = "WAN bytes by key" if is_only else f"WAN bytes by key: {group.label}"
    return Bars(f"keys_{number}", title, "MB", ["up", "down", "framing"], rows)
