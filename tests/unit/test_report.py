"""The report: runs are found and folded, what is drawn is what they left, and a browser finds nothing wrong with it."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from geomx.launch.accounts import SENT
from geomx.report import __main__ as command
from geomx.report.charts import charts
from geomx.report.runs import find, fold
from geomx.report.svg import number, ticks

BYTES = {"none": 1_000_000, "bsc": 10_000, "bad": 2_000_000}
ACCURACY = {"none": 0.9, "bsc": 0.85, "bad": 0.5}


def leave(directory, compression="none", seed=1, status="finished", error=None):
    """What a run of five rounds leaves."""
    directory.mkdir(parents=True)
    total, final = BYTES[compression], ACCURACY[compression] + seed / 100
    tier = {"up_bytes": total // 2, "down_bytes": total // 2}
    config = {"seed": seed, "compression": {"name": compression, **({"ratio": 0.01} if compression == "bsc" else {})},
              "task": {"name": "digits"}, "tracking": {"name": "none"}}  # fmt: skip
    summary = {
        "status": status, "error": error, "config": config, "mlflow_run_id": None, "rounds": 5, "seconds": 10.0,
        "nodes": [{"role": "worker", "name": f"a.worker{i}", "party": "a", "rank": i} for i in range(2)],
        "accuracy": final, "loss": 0.25, "target": {"reached_seconds": None}, "traffic": {"wan": tier, "lan": tier},
        "ledger": {"cost": 1.5, "currency": "EUR"}, "seconds_by": {"compute": 8.0, "wait": 6.0},
    }  # fmt: skip
    (directory / "summary.json").write_text(json.dumps(summary))
    rows = [{"step": s, "time": 1.0 * s, "loss": 1 / s, "accuracy": final - 0.3 + s * 0.06,
             "wan_up_bytes": total * s // 10, "wan_down_bytes": total * s // 10} for s in range(1, 6)]  # fmt: skip
    (directory / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    sent = [
        f"wan,a.server,global_server0,{d},fc<b>,RAW,5,{total // 2 - 50},50,{total // 2},0.1" for d in ("up", "down")
    ]
    (directory / "ledger.csv").write_text("\n".join([",".join(SENT), *sent, ""]))


@pytest.fixture
def sweep(tmp_path):
    """Three configurations, two seeds each, and a run that failed."""
    root = tmp_path / "sweep"
    for i, compression in enumerate(BYTES):
        for seed in (1, 2):
            leave(root / f"{2 * i + seed:03d}", compression, seed)
    leave(root / "099", status="failed", error="worker 0 <died>")
    (root / "multirun.yaml").write_text("")
    return root


def drawn(sweep):
    groups = fold([r for r in find([str(sweep)]) if r.is_finished])
    return {c.name: c for c in charts(groups)}


def test_seeds_are_folded_and_groups_are_called_by_what_differs(sweep):
    groups = fold([r for r in find([str(sweep)]) if r.is_finished])
    assert [(g.label, len(g.runs)) for g in groups] == [
        ("compression=none", 2), ("compression=bsc", 2), ("compression=bad", 2)]  # fmt: skip
    assert groups[0].spread("accuracy") == pytest.approx((0.915, 0.91, 0.92))


def test_curves_are_means_with_the_range_around_them(sweep):
    curve = drawn(sweep)["accuracy_over_time"].series[0]
    assert curve.points[-1] == pytest.approx((5.0, 0.915))
    assert (curve.low[-1], curve.high[-1]) == pytest.approx((0.91, 0.92))
    assert drawn(sweep)["accuracy_over_wan"].series[0].points[-1] == pytest.approx((1.0, 0.915))


def test_bytes_between_two_tellings_are_spread_over_the_rounds(tmp_path):
    leave(tmp_path / "run")
    file = tmp_path / "run" / "metrics.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row, told in zip(rows, (0, 0, 300_000, 300_000, 300_000)):  # half of each direction's bytes, once a second
        row["wan_up_bytes"] = row["wan_down_bytes"] = told
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    (run,) = find([str(tmp_path / "run")])
    assert [at for _, at, _ in run.curve("wan")] == pytest.approx([300e3, 600e3, 733e3, 867e3, 1000e3], rel=0.01)


def test_the_front_has_who_is_beaten_by_nobody(sweep):
    pareto = drawn(sweep)["pareto"]
    assert pareto.front == ["compression=none", "compression=bsc"]
    assert pareto.has_log_x


def test_time_and_keys_add_up(sweep):
    time = drawn(sweep)["time"]
    assert time.rows[0] == ("compression=none", pytest.approx([4.0, 3.0, 3.0]))
    keys = drawn(sweep)["keys_0"]
    assert keys.rows == [("fc<b>", pytest.approx([0.49995, 0.49995, 0.0001]))]


def test_the_page_says_what_failed_and_holds_nothing_from_outside(sweep, capsys):
    assert command.main([str(sweep), "--no-mlflow"]) == 0
    assert capsys.readouterr().out.strip() == str(sweep / "report.html")
    page = (sweep / "report.html").read_text()
    assert "worker 0 &lt;died&gt;" in page and "fc&lt;b&gt;" in page and "fc<b>" not in page
    assert not re.search(r"https?://|<script|<link rel=.stylesheet|@import|url\(", page)
    assert (sweep / "pareto.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_says_who_sends_less_and_how_many_seeds_reached_the_target(sweep):
    for name, reached in (("001", 4.0), ("002", 6.0), ("003", 3.0), ("004", None)):  # none, none, bsc, bsc
        summary = json.loads((sweep / name / "summary.json").read_text())
        summary["target"] = {"accuracy": 0.85, "reached_seconds": reached}
        (sweep / name / "summary.json").write_text(json.dumps(summary))
    assert command.main([str(sweep / name) for name in ("001", "002", "003", "004")] + ["--out", str(sweep)]) == 0
    page = (sweep / "report.html").read_text()
    rows = [re.findall(r"<td>([^<]*)</td>", row) for row in page.split('<tr><th scope="row">')[1:3]]
    assert "to 0.85, s" in page
    assert [("5.0" in rows[0], "1x" in rows[0]), ("3.0 (1 of 2 seeds)" in rows[1], "100x" in rows[1])] == [
        (True,) * 2
    ] * 2


def test_one_run_alone(sweep):
    assert command.main([str(sweep / "001"), "--no-mlflow"]) == 0
    page = (sweep / "001" / "report.html").read_text()
    assert "Accuracy over time" in page and "Accuracy against" not in page and "a.server → global_server0" in page


def test_a_run_without_rounds_has_a_page_too(tmp_path):
    leave(tmp_path / "run", status="failed", error="refused")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    assert command.main([str(tmp_path / "run"), "--no-mlflow"]) == 0
    assert "refused" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("word", ["nowhere", ".", "0" * 40])
def test_what_is_no_run_is_refused(word, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.main([word]) == 2
    assert f"report: {word}" in capsys.readouterr().err


def test_ticks_are_round_and_cover():
    assert ticks(0.0, 9.3) == [0, 2, 4, 6, 8, 10]
    assert ticks(0.213, 0.347) == [0.2, 0.225, 0.25, 0.275, 0.3, 0.325, 0.35] or ticks(0.213, 0.347)[0] <= 0.213
    for low, high in [(0, 0), (5, 5), (-3, 7), (0, 1e-9), (1e9, 3e9)]:
        found = ticks(low, high)
        assert found[0] <= low and found[-1] >= high and len(found) < 12
    assert [number(v) for v in (1500.0, 0.5, 1e-7)] == ["1,500", "0.5", "1e-07"]


def test_a_browser_finds_nothing_wrong_with_it(sweep, tmp_path):
    chromium = next((c for c in ("chromium", "chromium-browser", "google-chrome") if shutil.which(c)), None)
    if chromium is None:
        pytest.skip("no chromium is installed: apt-get install chromium")
    assert command.main([str(sweep), "--no-mlflow"]) == 0
    shot = tmp_path / "shot.png"
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
             "--disable-component-update", profile, "--enable-logging=stderr"]  # fmt: skip
    ended = subprocess.run([chromium, *flags, "--window-size=1200,2000", f"--screenshot={shot}",
                            "--virtual-time-budget=2000", (sweep / "report.html").as_uri()],
                           capture_output=True, text=True, timeout=150, check=False)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "CONSOLE" not in ended.stderr, ended.stderr
    assert shot.stat().st_size > 30_000  # an empty page has less


MLFLOW = """
import json, sys
from pathlib import Path
from geomx.api import RunInfo
from geomx.config import load
from geomx.report import __main__ as command
from geomx.tracking import observers
from geomx.tracking.mlflow import client, default_uri

def track(directory):
    summary = json.loads((directory / "summary.json").read_text())
    rows = (directory / "metrics.jsonl").read_text()
    watching = observers(load({}))
    watching.start(RunInfo(directory=directory, config=summary["config"], in_sweep=True))
    (directory / "summary.json").write_text(json.dumps({**summary, "mlflow_run_id": watching.run_id}))
    (directory / "metrics.jsonl").write_text(rows)  # who starts to watch begins an empty one
    watching.end(summary)
    return watching.run_id

root = Path(sys.argv[1])
ids = [track(root / name) for name in ("001", "003")]
parent = (root / "mlflow_parent").read_text().split()[-1]
for words, out in (([ids[0]], "one"), ([parent], "sweep")):
    assert command.main([*words, "--out", str(root.parent / out)]) == 0
(root / "001").rename(root.parent / "moved")  # then what MLflow keeps is as good
assert command.main([ids[0], "--out", str(root.parent / "again"), "--no-mlflow"]) == 0
c = client(default_uri())
print(json.dumps({name: [a.path for a in c.list_artifacts(run, "report")] for name, run in
                  (("one", ids[0]), ("sweep", parent))}))
"""


@pytest.mark.timeout(240)
def test_runs_are_found_by_their_mlflow_ids_and_the_page_is_logged_there(sweep, tmp_path):
    pytest.importorskip("mlflow")
    environment = {**os.environ, "GEOMX_HOME": str(tmp_path / "home")}
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", MLFLOW, str(sweep)], capture_output=True, text=True,
                           env=environment, timeout=200, check=False)  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    logged = json.loads(ended.stdout.splitlines()[-1])
    assert "report/report.html" in logged["one"] and "report/report.html" in logged["sweep"]
    for name in ("one", "again"):
        assert "Accuracy over time" in (tmp_path / name / "report.html").read_text()
    assert "compression=" in (tmp_path / "sweep" / "report.html").read_text()
