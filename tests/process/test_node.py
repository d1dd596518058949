"""`python -m geomx.node`: what a node does that is started by hand, and how it ends."""

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


def node(*words, env=None, **more):
    command, pipe = [sys.executable, "-m", "geomx.node", *map(str, words)], subprocess.PIPE
    return subprocess.Popen(command, env={**ENVIRONMENT, **(env or {})}, stdout=pipe, stderr=pipe, text=True, **more)


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
    _, errors = run.communicate(timeout=20)
    assert run.returncode == 2
    assert sentence in errors
    assert "Traceback" not in errors


def test_a_worker_by_hand_needs_a_script():
    lan = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "9", "DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": "1"}
    run = node(env={"DMLC_ROLE": "worker", **lan})
    _, errors = run.communicate(timeout=20)
    assert run.returncode == 2 and errors.endswith("start it with python -m geomx.exec SCRIPT\n")


def test_a_wrong_config_is_refused(tmp_path):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({**json.loads(LONELY.to_json()), "config": {"task": {"name": "digitz"}}}))
    run = node(file)
    _, errors = run.communicate(timeout=20)
    assert run.returncode == 2
    assert "task=digitz is not installed" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("block", ["", "1"], ids=["a wait that sees signals", "a wait that doesn't"])
def test_ctrl_c_ends_a_node_that_waits_in_the_core(tmp_path, block):
    file = tmp_path / "spec.json"
    file.write_text(LONELY.to_json())
    run = node(file, env={"FAKE_BLOCK": block})
    time.sleep(1.5)
    assert run.poll() is None
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=10)
    assert run.returncode == 130
    assert "Traceback" not in errors


def test_a_closed_input_ends_a_node():
    run = node("-", stdin=subprocess.PIPE)
    assert run.stdin
    run.stdin.write(LONELY.to_json() + "\n")
    run.stdin.flush()
    time.sleep(1.5)
    assert run.poll() is None
    _, errors = run.communicate(timeout=10)
    assert run.returncode == 1
    assert "the launcher is gone" in errors
