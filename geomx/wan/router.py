"""The engine of launcher=netns: network namespaces, one a party, and geomx-router between them (geomx/netns). Needs
root and /dev/net/tun. Nothing outlives the router: neither namespaces nor devices have a name, and it ends with this
process.
"""

import contextlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from geomx.errors import ConfigError, RunFailed
from geomx.wan.plan import Wan

ENGINE = "netns"
STOP_S = 5.0
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}  # linux/capability.h


def missing() -> str:
    """Why there can be no namespaces here; empty: there can."""
    if os.geteuid() != 0:
        return "it needs root (network namespaces and TUN devices are made)"
    if lacking := [name for name, bit in CAPABILITIES.items() if not _effective() >> bit & 1]:
        return f"it needs {' and '.join(lacking)}, which this root doesn't have (docker: --cap-add, or --privileged)"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there is no /dev/net/tun here (modprobe tun, or give the container that device)"
    if not program().exists():
        return f"{program()} is not there: pip install geomx built on Linux"
    return ""


def _effective() -> int:
    """This process's capabilities, a bit each; all of them where the kernel doesn't say."""
    try:
        words = Path("/proc/self/status").read_text().split()
        return int(words[words.index("CapEff:") + 1], 16)
    except (OSError, ValueError):
        return -1


def program() -> Path:
    from geomx import _core

    return Path(str(_core.__file__)).parent / "geomx-router"


class Router:
    """The namespaces of one run and the network between them."""

    def __init__(self, wan: Wan, congestion: str, seed: int) -> None:
        """Raises ConfigError where it can't be had, and for a congestion control that the kernel lacks."""
        if why := missing():
            raise ConfigError(f"launcher=netns: {why}; use launcher=local, whose shaper needs nothing")
        self._wan = wan
        self._process = subprocess.Popen([str(program())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            told = self._ask("\n".join([*_lines(wan, congestion, seed), "start"]))
        except BaseException:
            self.close()
            raise
        self.congestion = str(told["congestion"])
        self._namespaces = dict(zip(wan.parties, told["namespaces"], strict=True))
        self._before: dict[str, Any] = {"wall_s": 0.0, "cpu_s": 0.0, "links": []}

    def namespace(self, party: str) -> str:
        """The file that joins its namespace, as long as the router runs."""
        return f"/proc/{self._process.pid}/fd/{self._namespaces[party]}"

    def prefix(self, party: str) -> list[str]:
        """Words before a command that is to run there."""
        return ["nsenter", f"--net={self.namespace(party)}"]

    def forget(self) -> None:
        """What was counted until now is not told: it was no part of the run."""
        self._before = self._ask("counters")

    def counters(self) -> dict[str, Any]:
        """wall_s and cpu_s since it was started, or since `forget`; by link: up_bytes and down_bytes with IP headers,
        packets, dropped at full queues, lost on the way."""
        now = self._ask("counters")
        for link, before in zip(now["links"], self._before["links"], strict=False):
            link.update({what: link[what] - before[what] for what in link if what != "party"})
        return {**now, **{what: now[what] - self._before[what] for what in ("wall_s", "cpu_s")}}

    def interface_bytes(self, party: str) -> tuple[int, int]:
        """(sent, received) as the kernel counts at the party's WAN device, IP headers included."""
        done = subprocess.run([*self.prefix(party), "cat", "/proc/self/net/dev"], capture_output=True, text=True)
        for line in done.stdout.splitlines():
            name, _, figures = line.partition(":")
            if name.strip() == "wan0":
                words = figures.split()
                return int(words[8]), int(words[0])
        raise RunFailed(f"the WAN device of party {party} has no counters: {done.stderr.strip()}")

    def told(self) -> dict[str, Any]:
        """For summary.json."""
        counted = self.counters()
        return {
            "engine": ENGINE,
            "congestion": self.congestion,
            "router_cpu_share": counted["cpu_s"] / max(counted["wall_s"], 1e-9),
            "queue_bytes": dict(zip(self._wan.parties, self._wan.queue_bytes, strict=True)),
            "links": {link.pop("party"): link for link in counted["links"]},
        }

    def close(self) -> None:
        with contextlib.suppress(OSError):
            assert self._process.stdin
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()

    def _ask(self, text: str) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline() or "{}")
        except (OSError, ValueError) as e:
            raise RunFailed(f"geomx-router doesn't answer: {e}") from None
        if "error" in answer or not answer:
            raise ConfigError(f"launcher=netns: {answer.get('error', 'geomx-router ended at once')}")
        return answer


def address(wan: Wan, party: str) -> str:
    """Of a party's nodes."""
    return f"10.9.0.{wan.index(party) + 1}"


def _lines(wan: Wan, congestion: str, seed: int) -> list[str]:
    lines = [f"party {name} {up:.9g} {down:.9g} {queue:.9g}" for name, up, down, queue in
             zip(wan.parties, wan.up, wan.down, wan.queue_bytes, strict=True)]  # fmt: skip
    lines += [
        f"path {i} {j} {way.delay_us:.9g} {way.jitter_us:.9g} {way.loss:.9g} {way.burst:.9g}"
        for i, row in enumerate(wan.paths)
        for j, way in enumerate(row)
    ]
    lines += [f"trace {c.at_us} {c.bytes_per_s:.9g} {c.delay_us:.9g} {c.loss:.9g}" for c in wan.trace]
    lines += [f"share {i} {at_us} {share:.9g}" for i, changes in enumerate(wan.shares) for at_us, share in changes]
    if wan.priorities:
        lines.append("priorities")
    if congestion:
        lines.append(f"congestion {congestion}")
    return [*lines, f"seed {seed}"]
