"""The launcher: what it leaves, what it says, and that nothing is left running however a run ends."""

import os
import re
import signal
import socket
from pathlib import Path

import pytest

FOREVER = {"FAKE_STEPS": "100000"}


def test_a_run_leaves_its_contract(begin):
    ended = begin().wait()
    assert ended.code == 0, ended.output
    assert ended.summary["status"] == "finished"
    assert ended.summary["error"] is None
    assert ended.summary["rounds"] == 5
    assert ended.summary["samples"] == 4 * 5 * 8
    assert ended.summary["accuracy"] == 0.98
    assert [row["step"] for row in ended.rows] == [1, 2, 3, 4, 5]
    assert ended.rows[0].keys() >= {"time", "loss", "accuracy", "wan_up_bytes", "lan_down_bytes", "compute_s", "wait_s"}
    assert "accuracy" not in ended.rows[1]
    nodes = ended.summary["nodes"]
    assert sorted(n["role"] for n in nodes) == [
        "global_scheduler", "global_server", "local_server", "local_server", "scheduler", "scheduler",
        "worker", "worker", "worker", "worker",
    ]  # fmt: skip
    assert all(n["exit_code"] == 0 and n["pid"] and n["host"] for n in nodes)
    assert {n["weights_hash"] for n in nodes if n["role"] == "worker"} == {"abc"}
    assert {f.stem for f in (ended.directory / "logs").iterdir()} == {n["name"] for n in nodes}
    assert ended.summary["traffic"]["wan"]["up_bytes"] == 100 * len(nodes)
    assert ended.summary["seconds_by"]["encode"] == 0.5 * len(nodes)
    assert (ended.directory / ".hydra" / "config.yaml").exists()


def test_flat_has_one_domain(begin):
    ended = begin("topology=flat", "topology.global_servers=2").wait()
    assert ended.code == 0, ended.output
    assert sorted(n["role"] for n in ended.summary["nodes"]) == [
        "global_scheduler", "global_server", "global_server", "worker", "worker", "worker", "worker",
    ]  # fmt: skip


def test_parties_of_different_sizes_and_central_workers(begin):
    ended = begin(
        "topology.parties=[{name: a, workers: 1}, {name: b, workers: 3}]", "topology.central_workers=1"
    ).wait()
    assert ended.code == 0, ended.output
    workers = [(n["party"], n["rank"]) for n in ended.summary["nodes"] if n["role"] == "worker"]
    assert workers == [("a", 0), ("b", 0), ("b", 1), ("b", 2), ("central", 0)]


def test_a_worker_that_raises_is_quoted(begin):
    ended = begin(env=FOREVER, script={"party1.worker0": {"step": 3, "do": "raise"}}).wait()
    assert ended.code == 1
    error = ended.summary["error"]
    assert "worker 0 of party party1: ValueError: boom" in error
    assert "waited for: its part in round 3" in error
    assert "party1.worker0.log" in error
    assert error in ended.output
    assert "Traceback" not in ended.output
    assert "wan traffic" in ended.output
    assert "in act" in (ended.directory / "logs" / "party1.worker0.log").read_text()


@pytest.mark.parametrize(
    "node", ["party0.worker1", "party1.server", "global_server0", "party0.scheduler", "global_scheduler"]
)
def test_a_killed_node_ends_the_run(begin, node):
    run = begin(env=FOREVER)
    run.until(run.is_training)
    log = run.directory / "logs" / f"{node}.log"
    pid = next(p for p in run.node_pids() if Path(f"/proc/{p}/fd/1").readlink() == log)
    os.kill(pid, signal.SIGKILL)
    ended = run.wait()
    assert ended.code == 1
    error = ended.summary["error"]
    assert "was killed by signal 9 (SIGKILL)" in error
    assert "waited for: its part in round" in error
    assert f"{node}.log" in error
    title = {
        "party0.worker1": "worker 1 of party party0",
        "party1.server": "local server of party party1",
        "global_server0": "global server 0",
        "party0.scheduler": "scheduler of party party0",
        "global_scheduler": "global scheduler",
    }[node]
    assert error.startswith(title)
    assert ended.summary["status"] == "failed"


def test_a_bad_end_after_all_are_done_is_no_success(begin):
    ended = begin(env={"FAKE_BAD_END": "1"}).wait()
    assert ended.code == 1
    assert "global scheduler ended with exit code 7" in ended.summary["error"]


def test_a_worker_that_just_goes_is_no_success(begin):
    ended = begin(env=FOREVER, script={"party0.worker0": {"step": 2, "do": "exit"}}).wait()
    assert ended.code == 1
    assert "worker 0 of party party0 ended with exit code 0 before the run was over" in ended.summary["error"]


def test_fewer_batches_on_one_worker_are_no_failure(begin):
    ended = begin(script={"party0.worker0": {"step": 3, "do": "end"}}).wait()
    assert ended.code == 0, ended.output
    assert [row["samples"] for row in ended.rows] == [32, 32, 24, 24, 24]
    assert ended.summary["rounds"] == 5


def test_a_refusal_while_joining_is_a_failed_run(begin):
    ended = begin(env={"FAKE_REFUSE": "party1/local_server"}).wait()
    assert ended.code == 1
    assert "local server of party party1: compression is none here but fp16" in ended.summary["error"]
    # The scripted workers don't wait for others to join, so a step may have been told before the refusal.
    assert re.search("still waiting for all nodes to join|waited for: its part", ended.summary["error"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_end_everything(begin, number, code):
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"{number.name} is ignored here, as nohup does, and so by all that is started from here")
    run = begin(env=FOREVER)
    run.until(run.is_training)
    run.process.send_signal(number)
    ended = run.wait()
    assert ended.code == code
    assert ended.summary["status"] == "failed"
    assert ended.summary["error"] == "interrupted"
    assert "Traceback" not in ended.output
    assert run.node_pids() == []


def test_a_signal_before_all_have_joined(begin):
    run = begin(env={**FOREVER, "FAKE_REFUSE": ""}, script={})
    run.until(lambda: (run.directory / "logs" / "global_scheduler.log").exists())
    run.process.send_signal(signal.SIGINT)
    assert run.wait().code == 130


def test_nodes_follow_a_killed_launcher(begin):
    run = begin(env=FOREVER)
    run.until(run.is_training)
    assert len(run.node_pids()) == 10
    run.kill()


def test_nodes_follow_a_killed_launcher_through_a_prefix(begin):
    """Behind ssh or sudo the kernel doesn't tell: the closed pipe does."""
    run = begin("launcher.exec_prefix={party0: [sh, -c, 'exec 3<&0; \"$@\" <&3 3<&- & wait $!', sh]}", env=FOREVER)
    run.until(run.is_training)
    run.kill()


def test_a_frozen_node_is_killed_after_an_interrupt(begin):
    run = begin("launcher.stop_s=1", env=FOREVER, script={"party0.worker0": {"step": 5, "do": "stop"}})
    run.until(run.is_training)
    run.process.send_signal(signal.SIGINT)
    assert run.wait().code == 130


def test_two_runs_at_once(begin):
    first, second = begin(), begin()
    assert first.wait().code == second.wait().code == 0


def test_a_taken_port_is_named(begin):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = begin(f"topology.port={port}").wait()
    assert ended.code == 1
    assert f"127.0.0.1:{port}" in ended.summary["error"]
    assert "in use" in ended.summary["error"]


def test_a_prefix_that_does_not_exist(begin):
    ended = begin("launcher.exec_prefix={party1: [no-such-command]}").wait()
    assert ended.code == 1
    assert "scheduler of party party1: can't start no-such-command: No such file" in ended.summary["error"]


def test_a_missing_node_is_called_by_name(begin):
    ended = begin(
        "launcher.exec_prefix={party1: [sleep, '600', '#']}", "timeouts.slow_s=1", "timeouts.join_s=10"
    ).wait()
    assert ended.code == 1
    assert "scheduler of party party1" in ended.summary["error"]


def test_a_roll_call_names_who_is_missing(begin):
    run = begin("launcher.exec_prefix={central: [sh, -c, 'sleep 5; exec \"$@\"', sh]}", "timeouts.slow_s=1")
    ended = run.wait()
    assert ended.code == 0, ended.output
    assert "missing: global server 0" in ended.output


@pytest.mark.parametrize("host", ["no-such-host.invalid", "my_host", "a..b"])
def test_an_unknown_host_is_named(begin, host):
    ended = begin(f"topology.hosts.central={host}").wait()
    assert ended.code == 2
    assert ended.summary["status"] == "refused"
    assert f"topology.hosts.central: '{host}' given, there is no host of that name" in ended.summary["error"]


def test_warnings_of_nodes_are_shown(begin):
    ended = begin().wait()
    assert "party0.server: something is slow" in ended.output
    assert "as it should be" not in ended.output
    assert "as it should be" in (ended.directory / "logs" / "party0.server.log").read_text()


def test_a_target_says_when_it_was_reached(begin):
    ended = begin("target.accuracy=0.5").wait()
    assert ended.summary["target"]["reached_round"] == 3
    assert ended.summary["target"]["reached_seconds"] > 0


def test_plain_lines_where_there_is_no_terminal(begin):
    ended = begin(env={"FAKE_STEPS": "40", "FAKE_STEP_S": "0.1"}).wait()
    assert re.search(r"^round \d+ ", ended.output, re.MULTILINE)
    assert "\x1b" not in ended.output
