"""Sweeps: a directory a job, nothing shared, nothing lost, every failure told."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FAKE = Path(__file__).parent / "fake"
SMALL = ["topology=flat", "topology.parties=1", "topology.workers=1"]


@pytest.fixture
def sweep(tmp_path):
    def run(*words, script=None, tracking="none"):
        environment = {**os.environ, "GEOMX_HOME": str(tmp_path / "home"), "FAKE_SCRIPT": json.dumps(script or {})}
        environment["PYTHONPATH"] = str(FAKE)
        command = [sys.executable, "-m", "geomx.run", "-m", f"tracking={tracking}", *SMALL, *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)

    return run


def jobs(tmp_path):
    return sorted(p for p in tmp_path.glob("sweeps/*/*") if p.is_dir())


def summaries(tmp_path):
    return [json.loads((p / "summary.json").read_text()) for p in jobs(tmp_path)]


def test_a_job_for_each_combination(sweep, tmp_path):
    ended = sweep("seed=1,2", "task=digits,synthetic")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 of 4 jobs finished; one page about them: python -m geomx.report /" in ended.stdout
    assert [p.name.rpartition("-")[0] for p in jobs(tmp_path)] == [
        "000-seed=1,task=digits", "001-seed=1,task=synthetic", "002-seed=2,task=digits", "003-seed=2,task=synthetic",
    ]  # fmt: skip
    assert {s["status"] for s in summaries(tmp_path)} == {"finished"}
    assert [(s["config"]["seed"], s["config"]["task"]["name"]) for s in summaries(tmp_path)][1] == (1, "synthetic")


def test_what_does_not_go_together_is_dropped(sweep, tmp_path):
    ended = sweep("sync=fsa,mixed", "sync.optimizer.where=worker")
    assert ended.returncode == 0, ended.stderr
    assert "dropped 1 jobs: sync=mixed does not go with sync.optimizer.where=worker" in ended.stdout
    assert len(jobs(tmp_path)) == 1


def test_a_mistake_refuses_all(sweep, tmp_path):
    ended = sweep("task.batch_size=8,0")
    assert ended.returncode == 2
    assert "task.batch_size: 0 given" in ended.stderr
    assert jobs(tmp_path) == []


def test_every_failure_is_told_and_resumed(sweep, tmp_path):
    ended = sweep("seed=1,2,3", script={"party0.worker0": {"step": 2, "do": "raise", "seeds": [1, 3]}})
    assert ended.returncode == 1
    assert "2 of 3 jobs failed:" in ended.stderr
    assert ended.stderr.count("ValueError: boom") == 2
    assert [s["status"] for s in summaries(tmp_path)] == ["failed", "finished", "failed"]
    for job in jobs(tmp_path):
        log = (job / "geomx.log").read_text()
        assert ("Traceback" in log) == (json.loads((job / "summary.json").read_text())["status"] == "failed")
    again = sweep("seed=1,2,3", "sweep.resume=true")
    assert again.returncode == 0, again.stderr
    assert "1 finished before, 2 to run" in again.stdout
    assert {s["status"] for s in summaries(tmp_path)} == {"finished"}


def test_a_used_directory_is_not_used_again(sweep, tmp_path):
    assert sweep("seed=1", "hydra.sweep.dir=there").returncode == 0
    ended = sweep("seed=1", "hydra.sweep.dir=there")
    assert ended.returncode == 2
    assert "holds a sweep; sweep.resume=true goes on with it" in ended.stderr


def test_a_parent_run_for_the_sweep(sweep, tmp_path):
    ended = sweep("seed=1,2", tracking="mlflow")
    assert ended.returncode == 0, ended.stderr
    import sqlite3

    with sqlite3.connect(tmp_path / "home" / "mlflow.db") as store:
        runs = store.execute("select name, status from runs").fetchall()
        parents = store.execute("select value from tags where key = 'mlflow.parentRunId'").fetchall()
    store.close()
    assert len(runs) == 3
    assert {status for _, status in runs} == {"FINISHED"}
    assert len(parents) == 2
    assert len(set(parents)) == 1


def test_jobs_in_parallel_on_a_fresh_store(sweep, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="pip install hydra-joblib-launcher")
    ended = sweep("hydra/launcher=joblib", "hydra.launcher.n_jobs=3", "seed=1,2,3", tracking="mlflow")
    assert ended.returncode == 0, ended.stderr
    assert [s["status"] for s in summaries(tmp_path)] == ["finished"] * 3


def test_runs_that_start_together_have_directories_of_their_own(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(FAKE)}
    command = [sys.executable, "-m", "geomx.run", "tracking=none", *SMALL]
    runs = [subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [run.wait(110) for run in runs] == [0] * 4
    assert len(list(tmp_path.glob("runs/*/summary.json"))) == 4
