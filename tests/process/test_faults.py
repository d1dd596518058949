"""What the real core does when nodes die, never come, differ or aren't ours. By hand, so nobody is there to help."""

import contextlib
import os
import re
import signal
import socket
import time
from pathlib import Path

import by_hand
import pytest
from by_hand import PYTHON, ROOT

ROUNDS = ROOT / "tests" / "process" / "scripts" / "rounds.py"
DEATH_S = 4  # silence that is death; less, and a busy machine kills the living
ALL_BUT_ONE_S = "12"  # to join, where one never comes: the others must be able to
FAST = {"GEOMX_DEATH_S": str(DEATH_S), "GEOMX_JOIN_S": "60", "GEOMX_WAIT_S": "110", "GEOMX_SLOW_S": "1"}
ROLES = {
    "a.worker0": "worker 0 of party",
    "b.server": "local server of party",
    "global_server0": "global server 0",
    "a.scheduler": "the scheduler of the party of 127.0.0.1:",
    "global_scheduler": "the scheduler of the WAN",
}


@pytest.fixture
def deploy(tmp_path):
    yield from by_hand.deployments(tmp_path)


def started(deploy, rounds=1000, pause_s=0.02, linger_s=0.0, but=(), **variables):
    """A deployment of eleven nodes whose workers are about to join."""
    deployment = deploy({"a": 2, "b": 1}, **{**FAST, **variables})
    deployment.start_services(but)
    for name in ("master", *deployment.workers):
        if name not in but:
            deployment.start(name, *PYTHON, ROUNDS, 0 if name == "master" else rounds, pause_s, linger_s)
    return deployment


def training(deployment, names=None):
    return all("round 2 " in deployment.said(name) for name in names or deployment.workers)


def hurt(deployment, victim, number):
    """What the others' logs say, once all have ended; those that had not finished before have failed."""
    finished = {name for name, process in deployment.processes.items() if process.poll() == 0}
    deployment.processes[victim].send_signal(number)
    codes = deployment.wait(but=[victim])
    assert {name for name, code in codes.items() if code == 0} == finished, deployment.story()
    assert set(codes.values()) <= {0, 1}, deployment.story()
    return "\n".join(deployment.said(name) for name in codes)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
@pytest.mark.parametrize("victim", ROLES)
def test_a_death_in_a_round_ends_all_nodes(deploy, victim, number):
    deployment = started(deploy)
    deployment.until(lambda: training(deployment) and deployment.processes["master"].poll() == 0)
    said = hurt(deployment, victim, number)
    assert ROLES[victim] in said, deployment.story()
    assert re.search(f"{ROLES[victim]}.*(closed|not heard of for {DEATH_S} s|is lost).*log says more", said), (
        deployment.story()
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_relays_death_ends_all_nodes_and_names_it(deploy, number):
    pytest.importorskip("geomx_tsengine")
    deployment = started(deploy, ENABLE_INTER_TS="1")
    deployment.until(lambda: training(deployment) and deployment.processes["master"].poll() == 0)
    said = hurt(deployment, "b.server", number)
    assert re.search(f"local server of party.*(closed|not heard of for {DEATH_S} s).*log says more", said), (
        deployment.story()
    )


def test_a_relay_that_is_frozen_for_a_while_changes_no_sum(deploy, tmp_path):
    """Longer than others wait before they go around it, shorter than death."""
    pytest.importorskip("geomx_tsengine")
    variables = {**FAST, "GEOMX_DEATH_S": "60", "ENABLE_INTER_TS": "1", "ENABLE_INTRA_TS": "1"}
    deployment = deploy({"a": 2, "b": 1, "c": 1}, **variables)
    deployment.start_services()
    for name in ("master", *deployment.workers):
        held = [f"{number}={tmp_path / str(number)}" for number in (10, 20)] if name == "a.worker0" else []
        deployment.start(name, *PYTHON, ROUNDS, 0 if name == "master" else 40, 0, 0, *held)
    for number, victim in ((10, "b.server"), (20, "a.worker1")):
        deployment.until(lambda number=number: f"round {number - 1} " in deployment.said("a.worker0"))
        deployment.processes[victim].send_signal(signal.SIGSTOP)
        (tmp_path / str(number)).touch()
        time.sleep(2.5)
        deployment.processes[victim].send_signal(signal.SIGCONT)
    assert set(deployment.wait().values()) == {0}, deployment.story()
    for name in deployment.workers:
        assert re.findall(r"round \d+ (\S+)", deployment.said(name)) == ["4.0"] * 40, deployment.story()


@pytest.mark.parametrize("victim", ROLES)
def test_a_death_while_others_join_ends_all_nodes(deploy, victim):
    deployment = started(deploy, but=["b.worker0"])
    heard = {"global_scheduler": 3, "central.scheduler": 2, "a.scheduler": 3, "b.scheduler": 1}  # of all that are there
    for scheduler, count in heard.items():
        sign = re.compile(r"\(pid (\d+) on \S+\) (?:has joined|is about to join)")
        deployment.until(lambda s=scheduler, c=count: len(set(sign.findall(deployment.said(s)))) == c)  # noqa: B023
    said = hurt(deployment, victim, signal.SIGKILL)
    word = ROLES[victim].replace(" 0", "( 0)?")
    assert re.search(f"{word}.*closed", said), deployment.story()


def test_a_death_while_others_leave_ends_all_nodes(deploy):
    """A party has left when the other's worker dies: that party is well, all else fails."""
    deployment = started(deploy, rounds=2, but=["b.worker0"])
    deployment.start("b.worker0", *PYTHON, ROUNDS, 2, 0.02, 30)
    left = ["master", "a.worker0", "a.worker1", "a.server", "a.scheduler"]
    deployment.until(lambda: all(deployment.processes[n].poll() == 0 for n in left))
    deployment.until(lambda: training(deployment))
    said = hurt(deployment, "b.worker0", signal.SIGKILL)
    assert re.search("worker 0 of party .*closed", said), deployment.story()


def test_a_role_that_never_comes_is_named_by_all(deploy):
    deployment = started(deploy, but=["b.worker0", "a.worker1"], GEOMX_JOIN_S=ALL_BUT_ONE_S)
    codes = deployment.wait()
    assert set(codes.values()) == {1}, deployment.story()
    for name in codes:
        assert re.search(r"lacks 1 of [12] workers; here: ", deployment.said(name)), deployment.story()


def test_a_scheduler_that_never_comes(deploy):
    deployment = started(deploy, but=["global_scheduler"], GEOMX_JOIN_S=ALL_BUT_ONE_S)
    codes = deployment.wait()
    assert set(codes.values()) == {1}, deployment.story()
    assert "the scheduler of the WAN at 127.0.0.1:" in deployment.said("a.worker0")


def test_counts_that_differ_are_told_to_all(deploy):
    deployment = started(deploy, but=["a.worker1"])
    deployment.start("a.worker1", *PYTHON, ROUNDS, 1, 0, DMLC_NUM_WORKER="3")
    codes = deployment.wait()
    assert set(codes.values()) == {1}, deployment.story()
    sentence = (
        r"a worker of party .* says that the party of .* has [23] workers, others say [23]; give all its nodes the"
    )
    for name in ("a.scheduler", "a.worker0", "a.worker1", "b.worker0", "global_server0"):
        assert re.search(sentence, deployment.said(name)), deployment.story()


def test_settings_that_differ_name_both_nodes(deploy):
    deployment = started(deploy, but=["a.server", "b.server"])
    deployment.start("a.server", MXNET_KVSTORE_BIGARRAY_BOUND="10")
    deployment.start("b.server", MXNET_KVSTORE_BIGARRAY_BOUND="20")
    codes = deployment.wait()
    assert set(codes.values()) == {1}, deployment.story()
    sentence = (
        r"placement.bigarray_bound: local server of party 127.0.0.1:\d+ has [12]0, local server of party "
        r"127.0.0.1:\d+ has [12]0; set it the same on both"
    )
    assert all(re.search(sentence, deployment.said(name)) for name in codes), deployment.story()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "my_host"])
def test_an_unknown_host_is_told_at_once(deploy, host):
    """And not when the time to join is over, which is later than this test's patience."""
    deployment = deploy({"a": 1}, **{**FAST, "GEOMX_JOIN_S": "300"})
    deployment.start("a.server", DMLC_PS_GLOBAL_ROOT_URI=host)
    deployment.start("a.worker0", *PYTHON, ROUNDS, 1, 0, DMLC_PS_ROOT_URI=host)
    codes = deployment.wait()
    assert set(codes.values()) == {1}, deployment.story()
    assert all(f"unknown host {host}" in deployment.said(name) for name in codes), deployment.story()


def test_strangers_and_slow_uneven_workers(deploy, tmp_path):
    """Random bytes at every port, nodes with another token or none, a worker that is slow and one that ends early:
    training goes on to its end, and the slow one is named."""
    deployment = started(deploy, rounds=40, but=["a.worker0"], GEOMX_TOKEN="right", GEOMX_DEATH_S="60")
    deployment.start("a.worker0", *PYTHON, ROUNDS, 25, 0, 0, f"3={tmp_path / 'go'}")
    deployment.until(lambda: training(deployment))
    deployment.processes["a.worker0"].send_signal(signal.SIGSTOP)
    (tmp_path / "go").touch()
    ports = {port for process in deployment.processes.values() for port in listening(process.pid)}
    assert len(ports) >= 7
    for port in ports:
        shout(port)
    strangers = {"none": "", "wrong": "wrong"}
    for name, token in strangers.items():
        variables = deployment.variables("b.worker0") | {"GEOMX_TOKEN": token}
        deployment.start(f"b.{name}", *PYTHON, ROUNDS, 1, 0, **variables)
    deployment.until(lambda: all(deployment.processes[f"b.{name}"].poll() == 1 for name in strangers))
    deployment.until(lambda: "has waited" in deployment.said("a.server"))
    deployment.processes["a.worker0"].send_signal(signal.SIGCONT)
    codes = deployment.wait(but=["b.none", "b.wrong"])
    assert set(codes.values()) == {0}, deployment.story()
    assert "it shows no token, but one is set on this node (GEOMX_TOKEN)" in deployment.said("b.none")
    assert "it shows another token than this node's (GEOMX_TOKEN)" in deployment.said("b.wrong")
    assert re.search(r'round \d+ of key "w" has waited \d+ s for worker \d of party', deployment.said("a.server"))
    assert "round 25 3.0" in deployment.said("a.worker0")
    assert "round 40 2.0" in deployment.said("a.worker1")


def listening(pid):
    """TCP ports on which a process listens."""
    sockets = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(str(file.readlink()))
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def shout(port):
    """Random bytes, a ZMTP greeting that ends in the middle, one that goes on with random bytes, and nothing at all."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31)
    for text in (os.urandom(3), os.urandom(5000), greeting[:20], greeting + os.urandom(300), b""):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            try:
                connection.sendall(text)
            except OSError:
                continue  # refused already
