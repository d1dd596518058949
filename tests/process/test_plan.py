"""What `python -m geomx.plan` predicts is what a run then sends; what can't run is told, and starts nothing."""

import json
import subprocess
import sys

import pytest
from hydra import compose, initialize_config_dir

from geomx import app, plugins, predict, run

JOBS = {
    "none, flat": ("topology=flat", "task.epochs=1"),
    "fp16, two servers": ("compression=fp16", "topology.global_servers=2", "topology.bigarray_bound=1000",
                          "topology.parties=3", "topology.workers=1", "task.epochs=2"),
    "bsc, weights": ("compression=bsc", "task.epochs=2"),
}  # fmt: skip


def predicted(words):
    run.install()
    with initialize_config_dir(str(plugins.CONF), version_base="1.3"):
        return predict.predict(app.typed(compose("config", ["framework=numpy", "tracking=none", *words])))


@pytest.mark.parametrize("job", JOBS)
def test_a_run_sends_what_was_predicted(begin, job):
    prediction = predicted(JOBS[job])
    ended = begin("framework=numpy", *JOBS[job], real=True).wait()
    assert ended.code == 0, ended.output
    assert ended.summary["rounds"] == prediction.rounds
    for (tier, direction), wanted in prediction.bytes.items():
        sent = ended.summary["traffic"][tier][f"{direction}_bytes"]
        assert sent == pytest.approx(wanted, rel=0.04), (tier, direction, sent / wanted if wanted else sent)


def test_a_round_takes_about_the_time_that_was_predicted(begin):
    """Links so slow that they decide: sooner than they allow can't be, and a busy machine may be late."""
    words = ("task=charlm", "task.characters=20000", "task.max_rounds=6", "topology.workers=1", "network.rate_mbit=20",
             "network.delay_ms=20")  # fmt: skip
    prediction = predicted(words)
    ended = begin("framework=numpy", *words, real=True).wait()
    assert ended.code == 0, ended.output
    rows = [json.loads(line) for line in (ended.directory / "metrics.jsonl").read_text().splitlines()]
    took_s = (rows[-1]["time"] - rows[0]["time"]) / (len(rows) - 1)
    assert 0.7 * prediction.round_s < took_s < 3 * prediction.round_s


def planned(*words):
    command = [sys.executable, "-m", "geomx.plan", "framework=numpy", "tracking=none", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)


def test_a_sweep_is_listed_without_what_can_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = planned("-m", "sync=fsa,mixed", "sync.optimizer.where=worker,server")
    assert ended.returncode == 0, ended.stderr
    assert "dropped sync=mixed sync.optimizer.where=worker: sync=mixed does not go with" in ended.stdout
    assert len(ended.stdout.splitlines()) == 1 + 1 + 3 + 1 + 1  # dropped, names, jobs, all together, what is left out
    assert list(tmp_path.iterdir()) == []


def test_a_script_can_not_be_predicted(tmp_path):
    (tmp_path / "own.py").write_text("")
    ended = planned("task=script", f"task.script={tmp_path / 'own.py'}")
    assert ended.returncode == 2 and "what a script sends is known only to itself" in ended.stderr


@pytest.mark.parametrize(("word", "sentence"), [
    ("task.batch_size=0", "task.batch_size: 0 given"), ("task.foo=1", "task=digits has no option foo")])  # fmt: skip
def test_a_mistake_is_a_sentence(word, sentence):
    ended = planned(word)
    assert ended.returncode == 2
    assert sentence in ended.stderr and "Traceback" not in ended.stderr
