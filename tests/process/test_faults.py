"""What the real core does when nodes die, never come, differ or aren't ours. By hand, so nobody is there to help."""

import os
import re
import signal
import socket
import time

import by_hand
import pytest
from by_hand import PYTHON, ROOT

ROUNDS = ROOT / "tests" / "process" / "scripts" / "rounds.py"
DEATH_S, MARGIN_S = 2.0, 3.0
FAST = {"GEOMX_DEATH_S": str(DEATH_S), "GEOMX_JOIN_S": "8", "GEOMX_WAIT_S": "60", "GEOMX_SLOW_S": "1"}
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
    codes = deployment.wait(DEATH_S + MARGIN_S, but=[victim])
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
    assert re.search(f"{ROLES[victim]}.*(closed|not heard of for 2 s|is lost).*log says more", said), deployment.story()


@pytest.mark.parametrize("victim", ROLES)
def test_a_death_while_others_join_ends_all_nodes(deploy, victim):
    deployment = started(deploy, but=["b.worker0"])
    deployment.until(lambda: "b.scheduler" in deployment.processes and "has joined" in deployment.said("b.scheduler"))
    deployment.until(lambda: deployment.said("a.scheduler").count("has joined") == 3)
    said = hurt(deployment, victim, signal.SIGKILL)
    word = ROLES[victim].replace("worker 0", "worker")
    assert re.search(f"{word}.*(closed|not heard of|lacks)", said), deployment.story()
