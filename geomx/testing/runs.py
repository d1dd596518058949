"""Real runs as processes of their own, small ones: what suites of launchers and observers look at."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

# As few nodes as can be, and a task that needs nothing heavy.
SMALL = ("topology=flat", "topology.parties=1", "topology.workers=2", "framework=numpy", "task=charlm",
         "task.characters=20000", "task.eval_every=0")  # fmt: skip
SHORT = (*SMALL, "task.max_rounds=5")
ENDLESS = (*SMALL, "task.epochs=1000000")
DEADLINE_S = 150.0  # ends a hang


class Run:
    """`python -m geomx.run WORDS` in a folder of its own; at the end of the `with` neither is left."""

    def __init__(self, *words: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="geomx-run-")
        self.directory = Path(self._folder.name) / "run"
        command = [sys.executable, "-m", "geomx.run", f"hydra.run.dir={self.directory}", *words]
        self._output = (Path(self._folder.name) / "output").open("w+")
        self.process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT, cwd=self._folder.name,
                                        env={**os.environ, "GEOMX_HOME": self._folder.name})  # fmt: skip

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._output.close()
        self._folder.cleanup()

    def wait(self) -> int:
        """The exit code. AssertionError where it doesn't end in time."""
        try:
            return self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run was expected to end within {DEADLINE_S:g} s: {self.last_line()}") from None

    def until_it_trains(self) -> None:
        """Waits for its first rounds."""
        file, deadline = self.directory / "metrics.jsonl", time.monotonic() + DEADLINE_S
        while not (file.exists() and file.read_text().count("\n") > 1):
            assert self.process.poll() is None, f"the run ended before its first round: {self.last_line()}"
            assert time.monotonic() < deadline, (
                f"a first round was expected within {DEADLINE_S:g} s: {self.last_line()}"
            )
            time.sleep(0.05)

    def nodes(self) -> list[int]:
        """Process ids of nodes that this run started on this machine, in the order of their start."""
        family, found = {self.process.pid}, []
        for pid, parent, command in sorted(_processes()):
            if parent in family:
                family.add(pid)
                if "geomx.node" in command:
                    found.append(pid)
        return found

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def printed(self, word: str = "") -> str:
        """Its lines with this word."""
        self._output.seek(0)
        return "\n".join(line.strip() for line in self._output if word in line and line.strip())

    def last_line(self) -> str:
        return self.printed().rpartition("\n")[2] or "it printed nothing"

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "summary.json").read_text())
        return found

    def check_nothing_is_left(self) -> None:
        """Of the nodes that ran on this machine and had told their process ids."""
        known = [n for n in self.summary["nodes"] if n["pid"] and n["host"] == socket.gethostname()]
        left = [n["name"] for n in known if _is_alive(n["pid"])]
        assert not left, f"expected no node to be left when the run is over, there are: {', '.join(left)}"


def _processes() -> Iterator[tuple[int, int, str]]:
    """(process id, its parent's, its command) of all that run."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                yield int(entry.name), parent, (entry / "cmdline").read_text(errors="replace").replace("\0", " ")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:  # who nobody waits for is a zombie until somebody does
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
