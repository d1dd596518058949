"""Runs of `python -m geomx.run` on the real core: how they end when something happens to them."""

import json
import os
import signal
from pathlib import Path

import pytest

from geomx.launch.accounts import read
from geomx.testing.ports import kept_port

LONG = ("framework=numpy", "task.epochs=100000", "task.eval_every=0")


def check_ledger(ended):
    """Its rows add up to what the sockets counted."""
    rows, traffic = read(ended.directory / "ledger.csv"), ended.summary["traffic"]
    for tier in ("wan", "lan"):
        for direction in ("up", "down", "init"):
            mine = [r for r in rows if (r["tier"], r["direction"]) == (tier, direction)]
            assert sum(r["bytes"] for r in mine) == traffic[tier][f"{direction}_bytes"], (tier, direction)
            if direction != "init":
                assert sum(r["payload_bytes"] for r in mine) == traffic[tier][f"{direction}_payload_bytes"]
    assert ended.summary["ledger"]["cost"] == pytest.approx(sum(r["bytes"] for r in rows if r["tier"] == "wan") * 9e-11)
    return rows


def pid_of(run, name):
    """The node whose output goes to this log."""
    log = run.directory / "logs" / f"{name}.log"
    for pid in run.node_pids():
        if Path(os.readlink(f"/proc/{pid}/fd/1")) == log:  # noqa: PTH115
            return pid
    raise AssertionError(f"no process writes {log}")


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("party1.worker0", "worker 0 of party party1"),
        ("party0.server", "local server of party party0"),
        ("global_server0", "global server 0"),
    ],
)
def test_a_killed_node_ends_the_run_by_name(begin, name, title):
    run = begin(*LONG, "trace.rounds=[1,1000000]", "trace.max_spans=500", real=True)
    run.until(run.is_training)
    run.until(lambda: (run.directory / "trace" / "party0.server.txt").exists())
    os.kill(pid_of(run, name), signal.SIGKILL)
    ended = run.wait()
    assert ended.code == 1
    error = ended.summary["error"]
    assert f"{title} was killed by signal 9 (SIGKILL)" in error
    assert "waited for: its part in round" in error
    assert f"its log: {ended.directory / 'logs' / name}.log" in error
    assert error in ended.output.replace("\n", " ") or title in ended.output
    codes = {n["name"]: n["exit_code"] for n in ended.summary["nodes"]}
    assert 0 not in codes.values(), codes
    check_ledger(ended)
    events = json.loads((ended.directory / "trace.json").read_text())["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "s", "t", "f"}


def test_a_frozen_worker_ends_the_run_after_death_s(begin):
    run = begin(*LONG, "timeouts.death_s=2", "launcher.stop_s=1", real=True)
    run.until(run.is_training)
    os.kill(pid_of(run, "party0.worker1"), signal.SIGSTOP)
    ended = run.wait()
    assert ended.code == 1
    assert ended.summary["error"].startswith("worker 1 of party party0 (pid")
    assert "was not heard of for 2 s" in ended.summary["error"]
    assert ended.summary["error"].endswith("its log: " + str(ended.directory / "logs" / "party0.worker1.log"))


def test_ctrl_c_leaves_nothing(begin):
    run = begin(*LONG, real=True)
    run.until(run.is_training)
    run.process.send_signal(signal.SIGINT)
    ended = run.wait()
    assert ended.code == 130
    assert ended.summary["error"] == "interrupted"
    assert "Traceback" not in ended.output


def test_two_runs_at_once_and_a_third_on_a_taken_port(begin):
    port = f"topology.port={kept_port()}"
    short = begin("framework=numpy", "task.epochs=20", "topology.parties=1", real=True)
    long = begin(*LONG, "topology.parties=1", port, real=True)
    long.until(long.is_training)
    third = begin(*LONG, "topology.parties=1", port, real=True).wait()
    assert third.code == 1
    assert f":{port.partition('=')[2]}" in third.summary["error"]
    assert "address already in use by process" in third.summary["error"]
    ended = short.wait()
    assert ended.code == 0
    long.process.send_signal(signal.SIGINT)
    assert long.wait().code == 130
    rows = check_ledger(ended)
    links = {(r["sender"], r["receiver"]) for r in rows if r["direction"] == "up" and r["key"] == "fc0.weight"}
    assert links == {("party0.worker0", "party0.server"), ("party0.worker1", "party0.server"),
                     ("party0.server", "global_server0")}  # fmt: skip


SCRIPT = """
import numpy as np
from geomx import connect
with connect.store() as store:
    if store.is_master_worker:
        store.set_gradient_compression({"type": "none"})
        store.set_optimizer("sgd", learning_rate=0.5)
    store.init("w", np.zeros(4, np.float32))
    out = np.zeros(4, np.float32)
    for _ in range(3):
        store.push_pull("w", np.ones(4, np.float32), out)
    EXTRA
    print("weight", out[0])
"""


def test_a_script_decides_what_the_command_leaves_open(begin, tmp_path):
    (tmp_path / "own.py").write_text(SCRIPT.replace("EXTRA", "pass"))
    ended = begin("task=script", f"task.script={tmp_path / 'own.py'}", "topology.parties=1", real=True).wait()
    assert ended.code == 0, ended.output
    assert "weight -3.0" in (ended.directory / "logs" / "party0.worker1.log").read_text()


def test_a_script_that_contradicts_the_command_is_refused(begin, tmp_path):
    (tmp_path / "own.py").write_text(SCRIPT.replace("EXTRA", "pass"))
    words = ("task=script", f"task.script={tmp_path / 'own.py'}", "topology.parties=1")
    ended = begin(*words, "sync.optimizer.learning_rate=0.1", real=True).wait()
    assert ended.code == 1
    assert "own.py: optimizer: " in ended.summary["error"]
    said = (ended.directory / "logs" / "master.log").read_text()
    assert "optimizer: " in said
    assert "asks for" in said


# The one that raises ends after the others, which only heard of it, and hide that.
RAISES = """
import contextlib, time
@contextlib.contextmanager
def late():
    try:
        yield
    except ValueError:
        time.sleep(0.5)
        raise
""" + SCRIPT.replace("with ", "with late(), ").replace("EXTRA", """
    if store.rank == 1: raise ValueError("boom")
    try:
        store.barrier()
    except Exception:
        raise SystemExit(3) from None
""")  # fmt: skip


def test_a_script_that_raises_is_quoted(begin, tmp_path):
    (tmp_path / "own.py").write_text(RAISES)
    words = ("task=script", f"task.script={tmp_path / 'own.py'}", "topology.parties=1")
    ended = begin(*words, real=True).wait()
    assert ended.code == 1
    assert "worker 1 of party party0" in ended.summary["error"]
    assert "own.py: ValueError: boom; " in ended.summary["error"]
    assert "ValueError: boom" in (ended.directory / "logs" / "party0.worker1.log").read_text()
