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

FAKE = Path(__file__).parent / "fake"


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

    def wait(self, within_s: float = 30) -> Ended:
        output, _ = self.process.communicate(timeout=within_s)
        return Ended(self.process.returncode, output, self.directory, time.monotonic() - self._began)

    def until(self, true: Callable[[], bool], within_s: float = 20) -> None:
        deadline = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < deadline, "it didn't happen in time"
            assert self.process.poll() is None, self.process.communicate()[0]
            time.sleep(0.02)

    def is_training(self) -> bool:
        file = self.directory / "metrics.jsonl"
        return file.exists() and file.read_text().count("\n") > 2

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
            run.process.kill()
            run.process.communicate()
        left = run.node_pids()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"{len(left)} nodes were left behind"
