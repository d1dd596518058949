"""What a node has counted, told to its launcher once a second and at the end."""

import contextlib
import logging
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from geomx import _core
from geomx.control import Reporter
from geomx.units import size

EVERY_S = 1.0
log = logging.getLogger("geomx.node")


class Counting:
    """A thread of its own, which first says where the node listens."""

    def __init__(self, node: _core.Node, reporter: Reporter) -> None:
        self._node, self._reporter = node, reporter
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="counters", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Tells the last figures. More than one call is well."""
        if self._thread.is_alive():
            self._over.set()
            self._thread.join()
            with contextlib.suppress(_core.Error):
                self._tell_trace()
                taken = self._node.ledger()
                self._reporter.send("counters", taken["counters"])
                self._reporter.send("ledger", {"sent": taken["sent"], "work": taken["work"]})
                _log_sent(taken["counters"])

    def _run(self) -> None:
        while not (addresses := self._node.addresses):
            if self._over.wait(0.02):
                return  # it could not listen
        self._reporter.send("listening", dict(addresses))
        with contextlib.suppress(_core.Error):  # closed meanwhile
            while not self._over.wait(EVERY_S):
                self._reporter.send("counters", self._node.counters())
                self._tell_trace()

    def _tell_trace(self) -> None:
        if lines := self._node.take_trace():
            self._reporter.send("trace", {"lines": f"host {_boot_id()}\n{lines}"})


def _log_sent(counters: Mapping[str, float]) -> None:
    """What was sent, for whoever has nothing but this node's log: a run by hand has no launcher that adds it up."""
    for tier, where in (("wan", "between parties"), ("lan", "inside its party")):
        up, down, init = (counters.get(f"{tier}.{what}_bytes", 0.0) for what in ("up", "down", "init"))
        if up or down or init:
            log.info("sent %s: %s up, %s down, %s of first values", where, size(up), size(down), size(init))


def _boot_id() -> str:
    """Processes with the same one share a monotonic clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()
