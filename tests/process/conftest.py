"""Runs of `python -m geomx.run` as processes of their own, with a scripted core in the place of the real one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FAKE = HERE / "fake"
# Deadlines here end a hang. How long ten processes take to start and end is the machine's affair, and no test's: what
# must come by one way and not by another is seen from what is said.
PATIENCE_S = 120.0
TEST_S = 240


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TEST_S))


@dataclass
class Ended:
    code: int
    output: str
    directory: Path
    seconds: float

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "summary.json").read_text())
        return found

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / "metrics.jsonl").read_text().splitlines()]


class Started:
    """A run that is under way."""

    def __init__(self, words: list[str], directory: Path, environment: dict[str, str], before: list[str]) -> None:
        self.directory, self._began = directory, time.monotonic()
        command = [*before, sys.executable, "-m", "geomx.run", f"hydra.run.dir={directory}", *words]
        self.process = subprocess.Popen(
            command, env=environment, cwd=directory.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def wait(self, within_s: float = PATIENCE_S) -> Ended:
        output, _ = self.process.communicate(timeout=within_s)
        return Ended(self.process.returncode, output, self.directory, time.monotonic() - self._began)

    def until(self, true: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < deadline, "it didn't happen in time"
            assert self.process.poll() is None, self.process.communicate()[0]
            time.sleep(0.02)

    def is_training(self) -> bool:
        file = self.directory / "metrics.jsonl"
        return file.exists() and file.read_text().count("\n") > 2

    def kill(self) -> None:
        """Kills the launcher. Its nodes are told by the kernel, or by the end of their standard input."""
        self.process.kill()
        self.process.communicate()
        deadline = time.monotonic() + PATIENCE_S
        while self.node_pids():
            assert time.monotonic() < deadline, "nodes live on without their launcher"
            time.sleep(0.05)

    def node_pids(self) -> list[int]:
        """Of all living processes that were started for this run, by a mark in their environment."""
        return pids_with(str(self.directory))


def pids_with(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if (
                    mark.encode() in (entry / "environ").read_bytes()
                    and b"geomx.node" in (entry / "cmdline").read_bytes()
                ):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """begin(*words, env={...}, script={node: {step, do}}): starts a run; at the end of the test nothing may be left."""
    started: list[Started] = []

    def start(
        *words: str,
        env: dict[str, str] | None = None,
        script: dict[str, Any] | None = None,
        real: bool = False,
        tracking: str = "none",
        before: tuple[str, ...] = (),
    ) -> Started:
        directory = tmp_path / f"run{len(started)}"
        environment = {**os.environ, "GEOMX_HOME": str(tmp_path / "home"), "GEOMX_TEST_MARK": str(directory)}
        environment |= {"FAKE_SCRIPT": json.dumps(script or {}), **(env or {})}
        if not real:
            environment["PYTHONPATH"] = os.pathsep.join([str(FAKE), os.environ.get("PYTHONPATH", "")]).rstrip(
                os.pathsep
            )
        started.append(Started([f"tracking={tracking}", *words], directory, environment, list(before)))
        return started[-1]

    yield start
    for run in started:
        if run.process.poll() is None:
            run.kill()
        left = run.node_pids()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"{len(left)} nodes were left behind"
