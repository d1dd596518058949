"""The self-test of launcher=netns: real datagrams between two namespaces, measured from outside the router."""

import ctypes
import os
import socket
import statistics
import threading
import time
from typing import Any

from geomx.wan.plan import Wan
from geomx.wan.router import Router, address
from geomx.wan.selftest import Expected, Measured, report
from geomx.wan.shaper import paths_to_test

CLONE_NEWNET = 0x40000000
UDP_HEADERS = 28
LARGE, SMALL = 1472, 72  # payloads: a full packet of 1,500 bytes, and one of 100
PINGS = 5
BULK_S = 0.4
LEAST_PACKETS, MOST_PACKETS, LOSSES = 10_000, 60_000, 600  # that loss is counted over, and losses wanted
BUFFER_BYTES = 16 << 20


def self_test(router: Router, wan: Wan) -> list[dict[str, Any]]:
    """Both ways between parties and the central one, one path of each kind."""
    rows = []
    for a, b, expected in paths_to_test(wan):
        with _socket(router, wan, a) as near, _socket(router, wan, b) as far:
            near.connect(far.getsockname())
            far.connect(near.getsockname())
            delay_us = _delay_us(near, far, expected)
            loss = _loss(near, far, expected, wan.path(a, b).burst) if expected.loss else None
            bytes_per_s = _bytes_per_s(near, far, expected) if expected.bytes_per_s else 0.0
        rows.append(report(a, b, expected, Measured(bytes_per_s, delay_us, loss)))
    return rows


def _socket(router: Router, wan: Wan, party: str) -> socket.socket:
    """Made on a thread of its own in the namespace, where it stays."""
    made: list[socket.socket] = []
    errors: list[OSError] = []

    def make() -> None:
        try:
            fd = os.open(router.namespace(party), os.O_RDONLY)
            if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            os.close(fd)
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.setsockopt(socket.SOL_SOCKET, 33, BUFFER_BYTES)  # SO_RCVBUFFORCE
            s.setsockopt(socket.SOL_SOCKET, 32, BUFFER_BYTES)  # SO_SNDBUFFORCE
            s.bind((address(wan, party), 0))
            made.append(s)
        except OSError as e:
            errors.append(e)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return made[0]


def _delay_us(near: socket.socket, far: socket.socket, expected: Expected) -> float:
    """Half of the median round trip; a lost ping is sent again."""
    found: list[float] = []
    for side in (near, far):
        side.settimeout(1 + 4e-6 * expected.delay_us)
    for _ in range(20 * PINGS):
        began = time.monotonic()
        try:
            near.send(b"ping")
            far.recv(16)
            far.send(b"pong")
            near.recv(16)
        except TimeoutError:
            continue
        found.append((time.monotonic() - began) / 2 * 1e6)
        if len(found) == PINGS:
            break
    return statistics.median(found) if found else float("inf")


def _loss(near: socket.socket, far: socket.socket, expected: Expected, burst: float) -> float:
    """Of small packets at half of the link's rate, so that no queue fills."""
    count = int(min(MOST_PACKETS, max(LEAST_PACKETS, LOSSES * burst / expected.loss)))
    rate = min((expected.bytes_per_s or 1e9) / 2, 2.5e6)
    arrived = len(_stream(near, far, SMALL, rate, count, expected))
    return 1 - arrived / count


def _bytes_per_s(near: socket.socket, far: socket.socket, expected: Expected) -> float:
    """More than the link takes, and what comes out of it; the first tenth, in which queues fill, doesn't count."""
    size = LARGE + UDP_HEADERS
    count = max(30, int(expected.bytes_per_s * BULK_S / size))
    times = _stream(near, far, LARGE, expected.bytes_per_s * 1.25, int(count * 1.25), expected)
    times = times[len(times) // 10 :]
    return size * (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0


def _stream(near: socket.socket, far: socket.socket, payload: int, bytes_per_s: float, count: int,
            expected: Expected) -> list[float]:  # fmt: skip
    """When each packet arrived."""
    times: list[float] = []

    def receive() -> None:
        far.settimeout(0.2 + 2e-6 * expected.delay_us + 0.5)
        try:
            while True:
                far.recv(2048)
                times.append(time.monotonic())
        except TimeoutError:
            pass

    thread = threading.Thread(target=receive)
    thread.start()
    data, began, gap_s = bytes(payload), time.monotonic(), (payload + UDP_HEADERS) / bytes_per_s
    sent = 0
    near.settimeout(5)
    while sent < count:
        due = min(count, int((time.monotonic() - began) / gap_s) + 1)
        for _ in range(due - sent):
            near.send(data)
        sent = due
        time.sleep(0.0005)
    thread.join()
    return times
