"""What nodes tell their launcher while they run: JSON messages over ZeroMQ, one way.

Kinds, in order: hello (the process is up), listening (where a scheduler can be reached), joined (the cluster is
complete), round (a worker finished a step), note (a line for the user), counters (what the core counted so far; once a
second), done (the result) or failed (a sentence), ledger (the counters item by item), trace (lines for a timeline). The
other way goes through the node's standard input: once it is closed the launcher is gone, and the node ends.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import zmq

from geomx.spec import NodeSpec

KINDS = ("hello", "listening", "joined", "round", "note", "counters", "done", "failed", "ledger", "trace")
LINGER_MS = 2000  # a last message waits this long for a launcher that is slow


@dataclass(frozen=True, slots=True)
class Message:
    sender: str
    kind: str
    body: dict[str, Any]


class Reporter:
    """The node's end. `send` may be called from any thread and never waits; without a launcher it does nothing."""

    def __init__(self, spec: NodeSpec) -> None:
        self._name, self._token, self._lock = spec.name, spec.token, threading.Lock()
        self._socket: zmq.Socket[bytes] | None = None
        if spec.control:
            self._context = zmq.Context()
            self._socket = self._context.socket(zmq.PUSH)
            self._socket.set(zmq.SNDHWM, 0)
            self._socket.set(zmq.LINGER, LINGER_MS)
            self._socket.set(zmq.IPV6, 1)
            self._socket.connect(spec.control)

    def send(self, kind: str, body: dict[str, Any]) -> None:
        """Raises ValueError for an unknown kind, TypeError for a body that JSON can't hold."""
        if kind not in KINDS:
            raise ValueError(f"{kind}: no such kind of message; there are: {', '.join(KINDS)}")
        frame = json.dumps({"from": self._name, "token": self._token, "kind": kind, "body": body}).encode()
        with self._lock:
            if self._socket is not None:
                self._socket.send(frame, zmq.DONTWAIT)

    def close(self) -> None:
        """Returns when all was sent, after two seconds at most."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
                self._context.term()


class Inbox:
    """The launcher's end. What isn't a message of one of its nodes is counted and dropped."""

    def __init__(self, address: str, token: str, names: frozenset[str]) -> None:
        self._token, self._names = token, names
        self.refused = 0
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.IPV6, 1)
        self._socket.bind(address)

    @property
    def address(self) -> str:
        """With the port that was taken."""
        return str(self._socket.get_string(zmq.LAST_ENDPOINT))

    def receive(self, wait_s: float) -> Iterator[Message]:
        """All messages that are there; waits for the first one. Endless while nodes are faster than the caller."""
        wait_ms = int(wait_s * 1000)
        while self._socket.poll(wait_ms):
            wait_ms = 0
            if message := self._read(self._socket.recv()):
                yield message

    def rest(self, is_all: Callable[[], bool], within_s: float) -> Iterator[Message]:
        """What is still on its way from nodes that have ended, until `is_all()`: what they had sent lies in the kernel,
        and a busy machine may take its time to hand it over. At most as long as nodes hold it."""
        deadline = time.monotonic() + within_s
        while True:
            yield from self.receive(0.0)
            if is_all() or time.monotonic() > deadline:
                return
            self._socket.poll(50)

    def close(self) -> None:
        self._socket.close()
        self._context.term()

    def _read(self, frame: bytes) -> Message | None:
        try:
            given = json.loads(frame)
            message = Message(given["from"], given["kind"], given["body"])
            known = message.sender in self._names and message.kind in KINDS and isinstance(message.body, dict)
            if known and given["token"] == self._token:
                return message
        except (ValueError, KeyError, TypeError, RecursionError):
            pass  # whatever it was, it is no message of ours
        self.refused += 1
        return None
