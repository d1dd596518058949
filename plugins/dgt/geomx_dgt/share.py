"""One flow of ours beside one of TCP over cubic and one over bbr, on one loss-free link: what each gets."""

import json
import subprocess
import sys
import time
from typing import Any

from geomx.bench.wan_sides import Job, Ours
from geomx.config.network import Network
from geomx.config.topology import Hips
from geomx.wan.plan import resolve
from geomx.wan.router import Router, address, missing

__all__ = ["measure", "missing"]

CONTROLS = ("cubic", "bbr")
PORT = 9400
SLICE_S = 5.0
# Runs in a namespace: takes flows, and tells after each slice of time how many bytes of each came in it.
SINK = """
import json, selectors, socket, sys, time
address, port, names = sys.argv[1], int(sys.argv[2]), sys.argv[5:]
slice_s, slices = float(sys.argv[3]), int(sys.argv[4])
listener = socket.create_server((address, port))
print("listening", flush=True)
flows = {}
for _ in names:
    flow, _ = listener.accept()
    flows[flow] = flow.recv(16).decode().strip()
selector, begin = selectors.DefaultSelector(), time.monotonic()
for flow in flows:
    selector.register(flow, selectors.EVENT_READ)
for i in range(slices):
    counts = dict.fromkeys(names, 0)
    while time.monotonic() - begin < (i + 1) * slice_s:
        for key, _ in selector.select(0.05):
            counts[flows[key.fileobj]] += len(key.fileobj.recv(1 << 16))
    print(json.dumps(counts), flush=True)
"""
SOURCE = """
import socket, sys, time
flow = socket.socket()
flow.setsockopt(socket.IPPROTO_TCP, 13, sys.argv[3].encode())  # TCP_CONGESTION
flow.connect((sys.argv[1], int(sys.argv[2])))
flow.sendall(sys.argv[3].encode().ljust(16))
try:
    while True:
        flow.sendall(bytes(1 << 16))
except OSError:
    pass
"""


class Busy(Ours):
    """A cluster whose worker always has something to send."""

    def _arguments(self, kind: str, job: Job) -> list[str]:
        return ["-m", "geomx_dgt.share_worker"]


def measure(rate_mbit: float, delay_ms: float, slices: int) -> list[dict[str, float]]:
    """Bytes/s of each flow in each SLICE_S since the last of them began: cubic, bbr, and ours, headers included."""
    network = Network(name="none", rate_mbit=rate_mbit, delay_ms=delay_ms)
    wan = resolve(network, Hips(parties=1, workers=1))
    router = Router(wan, "cubic", 1)
    started: list[subprocess.Popen[Any]] = []
    side = None
    try:
        side = Busy(router, network, wan, Job(1, "", 0.1), transport={"name": "dgt"})
        side.workers[0].answer()  # it begins
        while router.interface_bytes("party0")[0] < 20_000_000:
            time.sleep(0.2)
        central = address(wan, "central")
        sink = _python(router, "central", SINK, central, PORT, SLICE_S, slices, *CONTROLS)
        started.append(sink)
        assert sink.stdout
        sink.stdout.readline()
        started += [_python(router, "party0", SOURCE, central, PORT, control) for control in CONTROLS]
        found = []
        before = router.interface_bytes("party0")[0]
        for _ in range(slices):
            tcp = {name: count * 1500 / 1448 for name, count in json.loads(sink.stdout.readline()).items()}
            now = router.interface_bytes("party0")[0]
            rates = {"dgt": now - before - sum(tcp.values()), **tcp}
            found.append({name: count / SLICE_S for name, count in rates.items()})
            before = now
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()
        if side is not None:
            side.stop()
        router.close()
    return found


def _python(router: Router, party: str, code: str, *arguments: object) -> "subprocess.Popen[Any]":
    command = [*router.prefix(party), sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
