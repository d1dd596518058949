"""The page: one HTML file without anything from outside, readable in light and dark, on a phone and on paper."""

from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape

from geomx.report import svg
from geomx.report.charts import Chart, Lines
from geomx.report.runs import Group, Run
from geomx.units import size

LIGHT = ("#2563a8", "#d9722e", "#3d8f5f", "#a8457c", "#7a6cc4", "#b38a1d", "#3a9aa8", "#7d7d7d")
DARK = ("#6ea8e8", "#f0965a", "#6cc190", "#dd84b3", "#aca0ee", "#dcb552", "#6fc8d4", "#a8a8a8")


def page(runs: Sequence[Run], groups: Sequence[Group], charts: Sequence[Chart]) -> str:
    title = runs[0].directory.name if len(runs) == 1 else f"{len(runs)} runs"
    failed = [r for r in runs if not r.is_finished]
    figures = "".join(_figure(c) for c in charts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>GeoMX: {escape(title)}</title>
<style>{_style()}</style>
</head>
<body>
<header>
<p class="kicker">GeoMX report</p><h1>{escape(title)}</h1><p class="muted">{escape(_subtitle(runs))}</p>
</header>
<main>
{_tiles(groups) if len(groups) == 1 else ""}
{_table(groups) if groups else ""}
<section class="figures">{figures}</section>
{_links(groups[0]) if len(groups) == 1 else ""}
{_failures(failed) if failed else ""}
{_config(groups)}
</main>
<footer class="muted">Bytes are counted at the sockets, each once, by its sender; initial values apart. Time is a
worker's own clock. {escape(datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"))}</footer>
</body>
</html>
"""


def _subtitle(runs: Sequence[Run]) -> str:
    finished = sum(r.is_finished for r in runs)
    words = f"{finished} of {len(runs)} finished" if len(runs) > 1 else str(runs[0].summary["status"])
    return f"{words} · {', '.join(dict.fromkeys(str(r.directory.parent) for r in runs))}"


def _tiles(groups: Sequence[Group]) -> str:
    """The figures of the only group, large."""
    group = groups[0]
    shown = [("accuracy", _range(group, "accuracy")), ("loss", _range(group, "loss")),
             ("rounds", f"{group.runs[0].summary['rounds']:,}"), ("seconds", _range(group, "seconds")),
             ("WAN traffic", size(group.wan_bytes)), ("WAN cost", _cost(group))]  # fmt: skip
    tiles = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in shown if v)
    return f'<dl class="tiles">{tiles}</dl>'


def _table(groups: Sequence[Group]) -> str:
    if len(groups) == 1:
        return ""
    columns: list[tuple[str, Callable[[Group], str]]] = [
        ("seeds", lambda g: str(len(g.runs))),
        ("accuracy", lambda g: _range(g, "accuracy")),
        ("loss", lambda g: _range(g, "loss")),
        ("seconds", lambda g: _range(g, "seconds")),
        (_target(groups), _reached),
        ("WAN", lambda g: size(g.wan_bytes)),
        ("fewer bytes", lambda g: _fewer(g, groups)),
        ("cost", _cost),
    ]
    shown = [(name, cells) for name, of in columns if any(cells := [of(g) for g in groups])]
    rows = ""
    for i, g in enumerate(groups):
        rows += f'<tr><th scope="row"><i class="swatch c{i % len(LIGHT)}"></i>{escape(g.label)}</th>'
        rows += "".join(f"<td>{escape(cells[i])}</td>" for _, cells in shown) + "</tr>"
    head = "".join(f'<th scope="col">{n}</th>' for n in ["configuration", *(name for name, _ in shown)])
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _figure(chart: Chart) -> str:
    note = f"<p>{escape(chart.note)}</p>" if chart.note else ""
    many = any(s.low for s in chart.series) if type(chart) is Lines else False
    band = "<p>Lines are means over seeds, bands from the least to the most.</p>" if many else ""
    return f"<figure><figcaption>{escape(chart.title)}</figcaption>{svg.draw(chart)}{note}{band}</figure>"


def _links(group: Group) -> str:
    """Bytes from node to node, both tiers."""
    totals: dict[tuple[str, str, str], list[int]] = {}
    for run in group.runs:
        for row in run.sent:
            if row["direction"] in ("up", "down"):
                found = totals.setdefault((row["tier"], row["sender"], row["receiver"]), [0, 0])
                found[0] += row["payload_bytes"]
                found[1] += row["framing_bytes"]
    if not totals:
        return ""
    rows = ""
    for (tier, sender, receiver), (payload, framing) in sorted(totals.items(), key=lambda t: (t[0][0] != "wan", t[0])):
        share = framing / (payload + framing) if payload + framing else 0.0
        cells = (tier.upper(), f"{sender} → {receiver or 'unknown'}", size(payload), f"{share:.2%}")
        rows += "<tr>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>"
    head = "".join(f'<th scope="col">{n}</th>' for n in ("tier", "link", "payload", "framing"))
    return (f'<details><summary>Traffic by link</summary><div class="scroll"><table class="left"><thead><tr>{head}</tr>'
            f"</thead><tbody>{rows}</tbody></table></div></details>")  # fmt: skip


def _failures(failed: Sequence[Run]) -> str:
    items = "".join(
        f"<li><b>{escape(r.directory.name)}</b>: {escape(str(r.summary.get('error')))}</li>" for r in failed
    )
    return f'<section><h2>Not finished</h2><ul class="failures">{items}</ul></section>'


def _config(groups: Sequence[Group]) -> str:
    if not groups:
        return ""
    same = {k: v for k, v in groups[0].options.items() if all(g.options.get(k) == v for g in groups)}
    rows = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in same.items())
    return (f"<details><summary>What all runs share</summary><div class=\"scroll\"><table class=\"left\"><tbody>{rows}"
            "</tbody></table></div></details>")  # fmt: skip


def _range(group: Group, name: str) -> str:
    """'0.951 (0.948–0.954)'"""
    spread = group.spread(name)
    if spread is None:
        return ""
    mean, low, high = (f"{v:.1f}" if name == "seconds" else f"{v:.3f}" for v in spread)
    return mean if low == high else f"{mean} ({low}–{high})"


def _target(groups: Sequence[Group]) -> str:
    """'to 0.95, s'"""
    goals = {r.summary["target"].get("accuracy") for g in groups for r in g.runs}
    return f"to {goals.pop():g}, s" if len(goals) == 1 and None not in goals else "to target, s"


def _reached(group: Group) -> str:
    """Seconds until the target. A mean of only those seeds that reached it would flatter: it says how many did."""
    wanted = [r.summary["target"] for r in group.runs if r.summary["target"].get("accuracy") is not None]
    reached = [t["reached_seconds"] for t in wanted if t["reached_seconds"] is not None]
    if not reached:
        return "not reached" if wanted else ""
    mean = f"{sum(reached) / len(reached):.1f}"
    return mean if len(reached) == len(wanted) else f"{mean} ({len(reached)} of {len(wanted)} seeds)"


def _fewer(group: Group, groups: Sequence[Group]) -> str:
    """'42.4x': WAN bytes of the configuration that sends most, by this one's."""
    most = max(g.wan_bytes for g in groups)
    return f"{most / group.wan_bytes:.3g}x" if group.wan_bytes else ""


def _cost(group: Group) -> str:
    ledgers = [r.summary["ledger"] for r in group.runs if r.summary.get("ledger")]
    return f"{sum(v['cost'] for v in ledgers) / len(ledgers):.3g} {ledgers[0]['currency']}" if ledgers else ""


def _style() -> str:
    light = "".join(f"--c{i}:{c};" for i, c in enumerate(LIGHT))
    dark = "".join(f"--c{i}:{c};" for i, c in enumerate(DARK))
    colours = "".join(f".c{i}{{--c:var(--c{i})}}" for i in range(len(LIGHT)))
    return f"""
:root{{{light}--bg:#fbfaf8;--card:#fff;--ink:#1d1f23;--muted:#6a6f78;--rule:#e4e2dd;color-scheme:light dark}}
@media (prefers-color-scheme:dark){{
:root{{{dark}--bg:#15171b;--card:#1d2025;--ink:#e8e6e1;--muted:#9aa0aa;--rule:#33373e}}}}
{colours}
*{{box-sizing:border-box}}
body{{margin:0 auto;max-width:1160px;padding:32px 24px 48px;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}}
h1{{margin:0 0 4px;font-size:30px;line-height:1.2;letter-spacing:-.01em;overflow-wrap:anywhere}}
h2{{font-size:18px;margin:32px 0 8px}}
.kicker{{margin:0;color:var(--c0);font-weight:600;font-size:13px;letter-spacing:.08em;text-transform:uppercase}}
.muted{{color:var(--muted);margin:0;font-size:13px;overflow-wrap:anywhere}}
footer{{border-top:1px solid var(--rule);margin-top:40px;padding-top:16px}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px;margin:28px 0}}
.tiles div,figure{{background:var(--card);border:1px solid var(--rule);border-radius:10px}}
.tiles div{{padding:12px 16px}}
dt{{color:var(--muted);font-size:13px}}
dd{{margin:0;font-size:21px;font-weight:600;font-variant-numeric:tabular-nums}}
.figures{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:20px;margin-top:28px}}
figure{{margin:0;padding:16px 18px}}
figcaption{{font-weight:600;margin-bottom:8px;overflow-wrap:anywhere}}
figure p{{color:var(--muted);font-size:13px;margin:6px 0 0}}
svg{{display:block;width:100%;height:auto}}
svg text{{fill:var(--muted);font-size:12px}}
svg .axis{{font-size:12.5px}}
svg .name{{fill:var(--ink)}}
.grid{{stroke:var(--rule);stroke-width:1}}
.line{{stroke:var(--c);stroke-width:2;fill:none;stroke-linejoin:round;stroke-linecap:round}}
.fill{{fill:var(--c)}}
.band{{opacity:.16}}
.front{{stroke:var(--muted);stroke-width:1.5;stroke-dasharray:5 4;fill:none}}
.legend{{list-style:none;display:flex;flex-wrap:wrap;gap:4px 16px;margin:8px 0 0;padding:0;font-size:13px}}
.swatch{{display:inline-block;width:10px;height:10px;border-radius:3px;background:var(--c);margin-right:6px}}
.scroll{{overflow-x:auto;margin-top:20px}}
table{{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}}
th,td{{padding:7px 12px;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap}}
th{{font-weight:600}}
tbody th{{white-space:normal;min-width:180px}}
thead th{{color:var(--muted);font-size:13px}}
th:first-child,.left td,.left th{{text-align:left}}
details{{margin-top:28px}}
summary{{cursor:pointer;font-weight:600}}
.failures{{padding-left:20px}}
@media print{{figure{{break-inside:avoid}}}}
"""
