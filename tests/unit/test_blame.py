"""Who is named as the first to fail."""

import itertools

import pytest

from geomx.launch.blame import Blame
from geomx.spec import DomainSpec, NodeSpec, said_by

LAN = DomainSpec(scheduler_host="h", scheduler_port=1, num_servers=1, num_members=2)


def node(role, party="", rank=0, name="", lan=LAN):
    name = name or f"{party}.{role.removeprefix('local_')}" + (str(rank) if role == "worker" else "")
    return NodeSpec(role=role, name=name, party=party, rank=rank, lan=lan, wan=LAN, log=f"logs/{name}.log")


NODES = [
    node("scheduler", name="global_scheduler", lan=None),
    node("scheduler", "a"),
    node("global_server", name="global_server0"),
    node("local_server", "a"),
    node("worker", "a", 0),
    node("worker", "a", 1),
    node("worker", "b", 0),
]


def blame():
    return Blame(NODES, lambda node: "waited for: its part in round 3")


def test_who_says_it_is_said_once():
    assert said_by("worker 1 of party a", "bad data") == "worker 1 of party a: bad data"
    assert said_by("worker 1 of party a", "worker 1 of party a: can't listen") == "worker 1 of party a: can't listen"
    assert said_by("global scheduler", "global scheduler of party c: no") == "global scheduler of party c: no"
    assert said_by("worker 1", "worker 10: dead") == "worker 1: worker 10: dead"


def test_nothing_is_wrong():
    found = blame()
    found.done("a.worker0")
    found.ended("a.worker0", 0, 1.0)
    assert found.since_s() is None


def test_the_result_may_come_after_the_end():
    found = blame()
    found.ended("a.worker0", 0, 1.0)
    assert found.since_s() == 1.0
    found.done("a.worker0")
    assert found.since_s() is None


def test_a_result_does_not_excuse_a_bad_exit():
    found = blame()
    found.done("a.worker0")
    found.ended("a.worker0", -11, 1.0)
    assert "was killed by signal 11 (SIGSEGV)" in found.sentence()


def test_the_dead_are_named_before_those_who_noticed():
    found = blame()
    found.told("a.server", "peer", "worker 0 has been silent for 12 s", 1.0)
    found.ended("a.server", 1, 1.1)
    found.ended("a.worker0", -9, 1.2)
    assert found.sentence() == (
        "worker 0 of party a was killed by signal 9 (SIGKILL); waited for: its part in round 3; "
        "local server of party a says: worker 0 has been silent for 12 s; its log: logs/a.worker0.log"
    )


def test_an_own_exception_goes_before_what_others_say():
    found = blame()
    found.told("a.worker1", "peer", "the run has failed", 1.0)
    found.told("a.worker0", "own", "ValueError: boom", 1.5)
    found.ended("a.worker0", 1, 1.6)
    assert found.sentence().startswith("worker 0 of party a: ValueError: boom; waited for")


def test_of_two_equal_ones_the_first():
    found = blame()
    found.told("a.worker1", "own", "late", 2.0)
    found.told("a.worker0", "own", "early", 1.0)
    assert found.sentence().startswith("worker 0 of party a: early")


def test_a_frozen_node_is_named_as_its_peers_put_it():
    found = blame()
    found.told("a.server", "peer", "worker 1 of party a (pid 7 on h) was not heard of for 12 s", 1.0)
    assert found.sentence() == (
        "worker 1 of party a (pid 7 on h) was not heard of for 12 s; waited for: its part in round 3; "
        "its log: logs/a.worker1.log"
    )


FROZEN = "worker 1 of party a (pid 7 on h) was not heard of for 12 s; its own log says more"
GONE = "worker 1 of party a (pid 7 on h) ended without a good-bye: its connection was closed; its own log says more"
DIFFER = "compression: local server of party a has none, worker 0 of party b has fp16; set it the same on both"
BOOM = "worker 1 of party a: ValueError: boom"
STEP = 'global server 0: key "w": updater: ZeroDivisionError'
WAITED = 'worker 1 of party a: pull of key "w" was not done after 600 s; round 3 waits for worker 0 of party b'
LOST = "worker 1 of party a: the connection to local server of party a is lost; its log says more"
CTRL_C = "worker 1 of party a was interrupted"
ENDED = "the scheduler of party a at h:1 ended before this node: its connection was closed; its own log says more"
SILENT = "the scheduler of the WAN at h:1 was not heard of for 12 s; its own log says more"


def heard(sentence, *nodes):
    return [(name, "peer", sentence) for name in nodes]


# What nodes tell, or how they end: in each case the first one is to blame, unless NAMED says otherwise.
CASES = {
    "killed": [("a.worker1", -9), *heard(GONE, "a.worker0", "a.server", "global_server0")],
    "raised": [("a.worker1", "own", "ValueError: boom"), *heard(BOOM, "a.worker0", "a.server")],
    "raised, and its word is lost": heard(BOOM, "a.worker0", "a.server", "b.worker0"),
    "raised, and another crashed of it": [("a.worker1", "own", "boom"), ("b.worker0", -6), *heard(BOOM, "a.server")],
    "frozen": heard(FROZEN, "a.worker0", "a.server", "b.worker0"),
    "in an updater": heard(STEP, "global_server0", "a.worker0", "a.server"),
    "a wait that ended": [("a.worker1", "timeout", WAITED), *heard(GONE, "a.server"), *heard(WAITED, "global_server0")],
    "a lost way": heard(LOST, "a.worker1", "a.worker0", "b.worker0"),
    "refused": [(name, "refused", DIFFER) for name in ("a.server", "a.worker1", "global_server0")],
    "interrupted": [("a.worker1", "interrupted", "interrupted"), *heard(CTRL_C, "a.server", "b.worker0")],
    "its scheduler": [("a.scheduler", -9), *heard(ENDED, "a.worker1", "a.server")],
    "a frozen scheduler": heard(SILENT, "a.worker1", "b.worker0"),
}
NAMED = {"raised, and its word is lost": "a.worker1", "frozen": "a.worker1", "a lost way": "a.server",
         "a frozen scheduler": "global_scheduler"}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_whoever_tells_first_the_same_one_is_named(case):
    said = set()
    for order in itertools.permutations(CASES[case]):
        found = blame()
        for at_s, (node, *what) in enumerate(order):
            found.ended(node, *what, at_s) if len(what) == 1 else found.told(node, *what, at_s)
        said.add(found.sentence().partition("; waited for")[0] + found.sentence().rpartition("; ")[2])
    assert len(said) == 1, said
    assert said.pop().endswith(f"its log: logs/{NAMED.get(case, CASES[case][0][0])}.log")
