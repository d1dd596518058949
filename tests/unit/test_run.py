"""`python -m geomx.run` without a run: exit codes, and nothing left where nothing was started."""

import os
import subprocess
import sys

import pytest


def run(tmp_path, *words):
    environment = {**os.environ, "GEOMX_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "geomx.run", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["task=digitz"], "geomx: task=digitz is not installed; there are: "),
        (["task.batch_size=abc"], "geomx: task.batch_size: 'abc' given, allowed is a whole number at least 1"),
        (["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["seed=1,2"], "geomx: seed: several values are a sweep (add -m) or a list (write [a,b])"),
        (["topology.parties=[{name:", "a}]"], "geomx: topology.parties=[{name:: can't be read as NAME=VALUE"),
        (["task=mnist", "task.data_dir=~/data"], "geomx: task.data_dir=~/data: can't be read as NAME=VALUE; quote the"),
        (["-m", "seed=1,2", "task.batch_size=0"], "geomx: task.batch_size: 0 given"),
        (["-m", "seed=interval(1,2)"], "a grid needs a list of values"),
    ],
)
def test_a_refused_configuration(tmp_path, words, sentence):
    ended = run(tmp_path, *words)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout
    assert not (tmp_path / "runs").exists()


def test_refused_when_composed_whole(tmp_path):
    ended = run(tmp_path, "topology.workers=0", "hydra.run.dir=here")
    assert ended.returncode == 2
    assert "topology.workers: 0 given, allowed is a whole number at least 1" in ended.stderr
    import json

    summary = json.loads((tmp_path / "here" / "summary.json").read_text())
    assert summary["status"] == "refused"
    assert summary["error"] == "topology.workers: 0 given, allowed is a whole number at least 1"
    assert not (tmp_path / "here" / "logs").exists()


def test_the_config_can_be_looked_at(tmp_path):
    ended = run(tmp_path, "--cfg", "job", "task=synthetic")
    assert ended.returncode == 0
    assert "shapes: resnet50" in ended.stdout


def imported(modules, names):
    """Which of `names` are loaded once `modules` are imported."""
    code = f"import sys, {modules}; print(*sorted({{m.partition('.')[0] for m in sys.modules}} & {names!r}))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_the_entry_does_not_pay_for_what_is_not_chosen():
    assert imported("geomx.run", {"mlflow", "matplotlib", "mxnet", "sklearn"}) == []


def test_importing_geomx_is_light():
    assert imported("geomx, geomx.api, geomx.spec", {"numpy", "hydra", "omegaconf", "zmq"}) == []
