"""Who is named as the first to fail."""

from geomx.launch.blame import Blame
from geomx.spec import DomainSpec, NodeSpec, said_by

LAN = DomainSpec(scheduler_host="h", scheduler_port=1, num_servers=1, num_members=2)
NODES = [
    NodeSpec(role="worker", name="a.worker0", party="a", rank=0, lan=LAN, log="logs/a.worker0.log"),
    NodeSpec(role="worker", name="a.worker1", party="a", rank=1, lan=LAN, log="logs/a.worker1.log"),
    NodeSpec(role="local_server", name="a.server", party="a", rank=0, lan=LAN, wan=LAN, log="logs/a.server.log"),
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


def test_a_frozen_node_is_told_by_its_peers():
    found = blame()
    found.told("a.server", "peer", "worker 1 of party a has been silent for 12 s", 1.0)
    assert found.sentence().startswith("local server of party a: worker 1 of party a has been silent for 12 s")
