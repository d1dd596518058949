"""Deployments that are started by hand: every node is a process that the seed's DMLC_* variables tell what it is, each
variable on just the roles on which the seed sets it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from geomx.testing.ports import kept_port

ROOT = Path(__file__).parent.parent
SERVICE = (sys.executable, "-u", "-m", "geomx.node")
EXEC = (sys.executable, "-u", "-m", "geomx.exec")
PYTHON = (sys.executable, "-u")
CENTRAL = "central"
PATIENCE_S = 120.0  # ends a hang, and judges nobody's speed


class Deployment:
    """Two parties of two workers with an observing master worker, like the seed's scripts, unless told otherwise."""

    def __init__(
        self,
        where: Path,
        parties: Mapping[str, int] | None = None,
        global_servers: int = 1,
        central_trains: bool = False,
        **everywhere: str,
    ) -> None:
        self._where, self._parties = where, dict(parties or {"a": 2, "b": 2})
        self._servers, self._central_trains = global_servers, central_trains
        self._everywhere = {"GEOMX_HOME": str(where / "home"), **everywhere}
        self._ports = {domain: kept_port() for domain in ("wan", CENTRAL, *self._parties)}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.codes: dict[str, int] = {}
        where.mkdir(parents=True, exist_ok=True)

    # --- who is there -------------------------------------------------------------------------------------------------
    @property
    def services(self) -> list[str]:
        parties = [f"{p}.{kind}" for p in self._parties for kind in ("scheduler", "server")]
        return ["global_scheduler", f"{CENTRAL}.scheduler", *self.global_servers, *parties]

    @property
    def global_servers(self) -> list[str]:
        return [f"global_server{i}" for i in range(self._servers)]

    @property
    def workers(self) -> list[str]:
        """Those that train by the parties' own right; the master worker is none of them."""
        return [f"{p}.worker{i}" for p, count in self._parties.items() for i in range(count)]

    @property
    def num_all_workers(self) -> int:
        return len(self.workers) + self._central_trains

    def variables(self, name: str) -> dict[str, str]:
        """As in the seed's scripts; of a worker for a name that is none of theirs."""
        party, _, kind = name.rpartition(".")
        if name == "global_scheduler":
            return {"DMLC_ROLE_GLOBAL": "global_scheduler", **self._wan()}
        if name.startswith("global_server"):
            central = {"DMLC_ENABLE_CENTRAL_WORKER": str(int(self._central_trains))}
            roles = {"DMLC_ROLE_GLOBAL": "global_server", "DMLC_ROLE": "server"}
            return {**roles, **self._lan(CENTRAL), **self._wan(), **self._all_workers(), **central}
        if name == "master":
            roles = {"DMLC_ROLE_MASTER_WORKER": "1", "DMLC_ROLE": "worker"}
            return {**roles, **self._lan(CENTRAL), **self._all_workers()}
        if kind == "scheduler":
            return {"DMLC_ROLE": "scheduler", **self._lan(party)}
        if kind == "server":
            return {"DMLC_ROLE": "server", **self._lan(party), **self._wan()}
        return {"DMLC_ROLE": "worker", **self._lan(party), **self._all_workers()}

    def _wan(self) -> dict[str, str]:
        return {
            "DMLC_PS_GLOBAL_ROOT_URI": "127.0.0.1",
            "DMLC_PS_GLOBAL_ROOT_PORT": str(self._ports["wan"]),
            "DMLC_NUM_GLOBAL_SERVER": str(self._servers),
            "DMLC_NUM_GLOBAL_WORKER": str(len(self._parties)),
        }

    def _lan(self, party: str) -> dict[str, str]:
        is_central = party == CENTRAL
        return {
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(self._ports[party]),
            "DMLC_NUM_SERVER": str(self._servers if is_central else 1),
            "DMLC_NUM_WORKER": str(1 if is_central else self._parties[party]),
        }

    def _all_workers(self) -> dict[str, str]:
        return {"DMLC_NUM_ALL_WORKER": str(self.num_all_workers)}

    # --- processes ----------------------------------------------------------------------------------------------------
    def start(self, name: str, *command: object, **variables: str) -> subprocess.Popen[bytes]:
        """Starts a node; without a command it is a service."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("DMLC_", "GEOMX_"))}
        environment = {**inherited, "OMP_NUM_THREADS": "1", **self._everywhere, **self.variables(name), **variables}
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(word) for word in command or SERVICE], env=environment, cwd=self._where, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        return self.processes[name]

    def start_services(self, but: Sequence[str] = (), **variables: str) -> None:
        for name in self.services:
            if name not in but:
                self.start(name, **variables)

    def log(self, name: str) -> Path:
        return self._where / f"{name}.log"

    def said(self, name: str) -> str:
        return self.log(name).read_text(errors="replace")

    def until(self, true: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < deadline, f"it didn't happen in time\n{self.story()}"
            time.sleep(0.02)

    def wait(self, within_s: float = PATIENCE_S, but: Sequence[str] = ()) -> dict[str, int]:
        """Exit codes of all nodes. Fails where one still runs after `within_s`."""
        deadline = time.monotonic() + within_s
        for name, process in self.processes.items():
            if name not in but:
                try:
                    self.codes[name] = process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    raise AssertionError(f"{name} still runs after {within_s} s\n{self.story()}") from None
        return {name: code for name, code in self.codes.items() if name not in but}

    def story(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"--- {name}\n" + "\n".join(self.said(name).splitlines()[-12:]) for name in self.processes)

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()


def deployments(where: Path) -> Iterator[Callable[..., Deployment]]:
    """The body of a fixture: makes deployments, and leaves none of their processes behind."""
    made: list[Deployment] = []

    def make(*arguments: object, **options: object) -> Deployment:
        made.append(Deployment(where / f"deployment{len(made)}", *arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for deployment in made:
        deployment.end()
