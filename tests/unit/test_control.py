"""What nodes tell their launcher, and what it takes."""

import json
import threading
import time

import pytest
import zmq

from geomx.control import Inbox, Reporter
from geomx.spec import DomainSpec, NodeSpec

LAN = DomainSpec(scheduler_host="h", scheduler_port=1, num_servers=1, num_members=2)


@pytest.fixture
def inbox():
    made = Inbox("tcp://127.0.0.1:*", "secret", frozenset({"a.worker0"}))
    yield made
    made.close()


def spec(inbox, **more):
    given = {"role": "worker", "name": "a.worker0", "lan": LAN, "control": inbox.address, "token": "secret", **more}
    return NodeSpec(**given)


def test_messages_arrive_in_order(inbox):
    reporter = Reporter(spec(inbox))
    for step in range(100):
        reporter.send("round", {"step": step})
    reporter.send("done", {})
    reporter.close()
    found = []
    for message in inbox.rest(lambda: len(found) == 101, 30):
        found.append(message)
    assert [m.body["step"] for m in found[:-1]] == list(range(100))
    assert (found[-1].kind, found[-1].sender) == ("done", "a.worker0")


def test_strangers_and_nonsense_are_counted_and_dropped(inbox):
    for more in ({"token": "other"}, {"name": "b.worker0"}):
        stranger = Reporter(spec(inbox, **more))
        stranger.send("done", {})
        stranger.close()
    context = zmq.Context()
    raw = context.socket(zmq.PUSH)
    raw.connect(inbox.address)
    good = {"from": "a.worker0", "token": "secret", "kind": "done", "body": {}}
    wrong = [b"", b"\xff\x00", b"3", b"[]", b"[" * 100_000, json.dumps({**good, "kind": "x"}).encode()]
    wrong += [json.dumps({**good, "body": 1}).encode(), json.dumps({**good, "from": ["a"]}).encode()]
    for frame in wrong:
        raw.send(frame)
    raw.send(json.dumps(good).encode())
    raw.close()
    context.term()
    found, deadline = [], time.monotonic() + 30
    while (not found or inbox.refused < 10) and time.monotonic() < deadline:
        found += inbox.receive(0.1)
    assert [m.kind for m in found] == ["done"]
    assert inbox.refused == 10


def test_what_is_still_on_its_way_is_waited_for(inbox):
    """As it is at a run's end: nothing is there yet, but somebody's last figures have left."""

    def tell():
        reporter = Reporter(spec(inbox))
        reporter.send("ledger", {})
        reporter.close()

    found, late = [], threading.Timer(0.3, tell)
    late.start()
    for message in inbox.rest(lambda: bool(found), 30):
        found.append(message.kind)
    assert found == ["ledger"]
    assert list(inbox.rest(lambda: False, 0.1)) == []  # who never tells holds nobody for ever
    late.join()


def test_without_a_launcher_nothing_happens():
    reporter = Reporter(NodeSpec(role="worker", lan=LAN))
    reporter.send("round", {"step": 1})
    reporter.close()


def test_a_launcher_that_is_gone_does_not_hold_a_node():
    reporter = Reporter(NodeSpec(role="worker", lan=LAN, control="tcp://127.0.0.1:9"))
    reporter.send("round", {"step": 1})
    reporter.close()  # or this test doesn't end


def test_a_wrong_kind_is_a_mistake(inbox):
    reporter = Reporter(spec(inbox))
    with pytest.raises(ValueError, match="no such kind of message; there are: hello"):
        reporter.send("rund", {})
    reporter.close()
