"""`python -m geomx.node`: what a node does that is started by hand, and how it ends."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from geomx.spec import DomainSpec, NodeSpec

FAKE = Path(__file__).parent / "fake"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(FAKE)}
LONELY = NodeSpec(
    role="scheduler", name="lonely",
    wan=DomainSpec(scheduler_host="127.0.0.1", scheduler_port=0, num_servers=1, num_members=1),
)  # fmt: skip


def node(*words, env=None, output=subprocess.PIPE, **more):
    command = [sys.executable, "-m", "geomx.node", *map(str, words)]
    return subprocess.Popen(
        command, env={**ENVIRONMENT, **(env or {})}, stdout=output, stderr=output, text=True, **more
    )


@contextlib.contextmanager
def until_it_waits(tmp_path, *words, **more):
    """(a node that waits for others to join, a function that gives what it said)."""
    output = tmp_path / "output"
    with output.open("wb") as file:
        run = node(*words, **more, output=file)
    try:
        if run.stdin:
            run.stdin.write(LONELY.to_json() + "\n")
            run.stdin.flush()
        while "as it should be" not in output.read_text():  # the scripted core's last word before it waits
            assert run.poll() is None, output.read_text()
            time.sleep(0.02)
        yield run, output.read_text
    finally:
        run.kill()
        run.wait()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "No such file or directory"),
        ("{", "node spec: not JSON"),
        ("{}", "node spec: a value is required: role"),
        ('{"role": "wroker"}', "role: 'wroker' given, allowed is one of scheduler, local_server"),
    ],
)
def test_a_wrong_spec_is_refused(tmp_path, text, sentence):
    file = tmp_path / "spec.json"
    if text is not None:
        file.write_text(text)
    run = node(file)
    _, errors = run.communicate(timeout=100)
    assert run.returncode == 2
    assert sentence in errors
    assert "Traceback" not in errors


def test_a_worker_by_hand_needs_a_script():
    lan = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "9", "DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": "1"}
    run = node(env={"DMLC_ROLE": "worker", **lan})
    _, errors = run.communicate(timeout=100)
    assert run.returncode == 2 and errors.endswith("start it with python -m geomx.exec SCRIPT\n")


def test_a_wrong_config_is_refused(tmp_path):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({**json.loads(LONELY.to_json()), "config": {"task": {"name": "digitz"}}}))
    run = node(file)
    _, errors = run.communicate(timeout=100)
    assert run.returncode == 2
    assert "task=digitz is not installed" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("block", ["", "1"], ids=["a wait that sees signals", "a wait that doesn't"])
def test_ctrl_c_ends_a_node_that_waits_in_the_core(tmp_path, block):
    file = tmp_path / "spec.json"
    file.write_text(LONELY.to_json())
    with until_it_waits(tmp_path, file, env={"FAKE_BLOCK": block}) as (run, said):
        run.send_signal(signal.SIGINT)
        assert run.wait(100) == 130
        errors = said()
    assert "Traceback" not in errors


def test_a_closed_input_ends_a_node(tmp_path):
    with until_it_waits(tmp_path, "-", stdin=subprocess.PIPE) as (run, said):
        run.stdin.close()
        assert run.wait(100) == 1
        assert "the launcher is gone" in said()
