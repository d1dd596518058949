"""Observers: JSON lines always, MLflow where it is chosen, and none of them ends a run."""

import json
import logging
import math
import subprocess
import sys
from pathlib import Path

import pytest

from geomx.api import RunInfo, Tracker
from geomx.config import load
from geomx.errors import ConfigError, RunFailed
from geomx.report.picture import draw, read
from geomx.tracking import JsonLines, Observers, observers
from geomx.tracking.mlflow import LONGEST_VALUE, flat

ROW = {"step": 1, "time": 0.5, "loss": 1.5, "samples": 8, "wan_up_bytes": 10, "compute_s": 0.1}


def info(directory: Path, **more):
    return RunInfo(directory=directory, config={"a": {"b": 1}}, **more)


def test_json_lines_are_there_at_once(tmp_path):
    lines = JsonLines()
    lines.start(info(tmp_path))
    lines.round(ROW)
    lines.round({**ROW, "step": 2, "loss": math.nan})
    found = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    lines.end({})
    assert found[0] == ROW
    assert found[1]["loss"] is None


class Broken(Tracker):
    def __init__(self, where):
        self.where = where

    def start(self, run):
        if self.where == "start":
            raise OSError("disk full")

    def round(self, row):
        if self.where == "round":
            raise OSError("disk full")


def test_an_observer_that_can_not_start_fails_the_run(tmp_path):
    with pytest.raises(RunFailed, match="Broken can't start: OSError: disk full"):
        Observers([Broken("start")]).start(info(tmp_path))


def test_an_observer_that_breaks_later_is_given_up(tmp_path, caplog):
    lines = JsonLines()
    both = Observers([Broken("round"), lines])
    both.start(info(tmp_path))
    with caplog.at_level(logging.WARNING, logger="geomx"):
        both.round(ROW)
        both.round(ROW)
    both.end({})
    assert caplog.text.count("Broken is given up: OSError: disk full") == 1
    assert len(read(tmp_path / "metrics.jsonl")) == 2


def test_none_needs_no_mlflow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    both = observers(load({"tracking": {"name": "none"}}))
    both.start(info(tmp_path))
    assert both.run_id is None
    both.end({})


def test_mlflow_that_is_missing_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setenv("GEOMX_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"tracking=mlflow: MLflow can't be imported .*use tracking=none"):
        observers(load({}))


def test_parameters_have_names_and_lengths_that_mlflow_takes():
    config = {
        "db@backup": {"x": 1},
        "db_backup": {"x": 2},
        "long": "x" * 7000,
        "empty": {},
        "list": [1, {"a": 2}],
        "n": None,
    }
    found = flat(config)
    assert found["db_backup.x"] == "1"
    assert found["db_backup.x_2"] == "2"
    assert len(found["long"]) == LONGEST_VALUE
    assert found["empty"] == "{}"
    assert found["list"] == "[1, {'a': 2}]"
    assert found["n"] == "None"


def test_a_picture_of_a_run(tmp_path):
    rows = [{**ROW, "step": i, "time": i, "loss": 1 / i, "wan_up_bytes": i * 1e6} for i in range(1, 9)]
    rows[3]["loss"] = None
    rows[5]["accuracy"] = 0.5
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows) + '{"step": 9, "ti')
    picture = draw(tmp_path)
    assert picture is not None
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_no_picture_without_rounds(tmp_path):
    assert draw(tmp_path) is None


MLFLOW_RUN = """
import sys, logging
from pathlib import Path
from geomx.api import RunInfo
from geomx.config import load
from geomx.tracking import observers
out, in_sweep = Path(sys.argv[1]), sys.argv[2] == "sweep"
out.mkdir(parents=True)
watching = observers(load({}))
config = {"db@backup": {"x": 1}, "long": "x" * 7000, "a": {"b": [1, 2]}}
watching.start(RunInfo(directory=out, config=config, in_sweep=in_sweep))
for step in range(1, 6):
    loss = float("nan") if step == 3 else 1 / step
    watching.round({"step": step, "time": step / 2, "loss": loss, "samples": 8, "wan_up_bytes": step * 10})
(out / "logs").mkdir()
(out / "logs" / "a.log").write_text("hello")
(out / "summary.json").write_text("{}")
failed = sys.argv[3] == "failed"
watching.end({"status": "failed" if failed else "finished", "error": "boom" if failed else None})
print(watching.run_id)
"""


def mlflow_run(tmp_path, name, kind="single", status="finished"):
    command = [sys.executable, "-W", "ignore", "-c", MLFLOW_RUN, str(tmp_path / name), kind, status]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.timeout(240)
def test_mlflow_holds_a_run(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMX_HOME", str(tmp_path / "home"))
    output, errors = mlflow_run(tmp_path, "run1", status="failed").communicate(timeout=200)
    assert "Traceback" not in errors
    found = look(output.split()[-1])
    assert found["status"] == "FAILED"
    assert found["tags"]["geomx.error"] == "boom"
    assert found["tags"]["geomx.not_finite.loss"] == "nan in step 3"
    assert found["params"]["db_backup.x"] == "1"
    assert [m["step"] for m in found["loss"]] == [1, 2, 4, 5]
    assert found["metrics"].keys() >= {"loss", "samples_per_s", "wan_up_bytes"}
    assert set(found["artifacts"]) >= {"config.yaml", "summary.json", "metrics.jsonl", "logs", "progress.png"}
    assert "x" * 7000 in found["config"]


@pytest.mark.timeout(240)
def test_many_runs_at_once_on_a_fresh_store(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMX_HOME", str(tmp_path / "home"))
    runs = [mlflow_run(tmp_path, f"sweep/{i}", "sweep") for i in range(4)]
    ended = [run.communicate(timeout=200) for run in runs]
    assert [run.returncode for run in runs] == [0] * 4, ended
    found = [look(output.split()[-1]) for output, _ in ended]
    assert {f["status"] for f in found} == {"FINISHED"}
    assert len({f["tags"]["mlflow.parentRunId"] for f in found}) == 1
    assert len({f["experiment"] for f in found}) == 1


LOOK = """
import json, sys
from geomx.tracking.mlflow import client, default_uri
c, run_id = client(default_uri()), sys.argv[1]
run = c.get_run(run_id)
path = c.download_artifacts(run_id, "config.yaml")
print(json.dumps({"status": run.info.status, "experiment": run.info.experiment_id, "tags": dict(run.data.tags),
  "params": dict(run.data.params), "metrics": dict(run.data.metrics),
  "loss": [{"step": m.step} for m in c.get_metric_history(run_id, "loss")],
  "artifacts": [a.path for a in c.list_artifacts(run_id)], "config": open(path).read()}))
"""


def look(run_id):
    """In a process of its own: MLflow stays out of this one."""
    command = [sys.executable, "-W", "ignore", "-c", LOOK, run_id]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
