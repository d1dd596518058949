"""Worker processes that a benchmark commands by lines of JSON, and the clusters that they belong to.

A command is {"case": ..., "way": ..., "rounds": n}, the answer {"seconds": for all n rounds} or {"error": a sentence}.
"""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Any

from geomx.spec import DomainSpec, NodeSpec
from geomx.testing.ports import kept_port

ANSWER_S = 120.0
WORKERS = 2


class Peer:
    """One process. Its standard error goes to a file whose end is shown if it dies."""

    def __init__(self, name: str, arguments: Sequence[str], environ: Mapping[str, str], first_line: str = "",
                 before: Sequence[str] = ()) -> None:  # fmt: skip
        self.name = name
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed in stop()
        command = [*before, sys.executable, *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=self._errors, env={**os.environ, **environ}, text=True)  # fmt: skip
        if first_line:
            self._write(first_line)

    def command(self, **command: Any) -> None:
        self._write(json.dumps(command))

    def answer(self) -> dict[str, Any]:
        """Raises RuntimeError if the process died, said an error, or takes too long."""
        out = self._process.stdout
        assert out is not None
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            line = out.readline() if selector.select(ANSWER_S) else None
        if line is None:
            raise RuntimeError(f"{self.name} didn't answer within {ANSWER_S:.0f} s{self._last_words()}")
        if not line:
            raise RuntimeError(f"{self.name} ended{self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        return answer

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._errors.close()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError:
            raise RuntimeError(f"{self.name} ended{self._last_words()}") from None

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return ": " + " | ".join(lines[-3:]) if lines else ""


class Side:
    """A cluster of one server and two workers that runs cases on command."""

    ways: Sequence[str] = ("push_pull",)

    def __init__(self) -> None:
        self.others: list[Peer] = []
        self.workers: list[Peer] = []
        self._best: dict[str, str] = {}

    def seconds(self, case: str, rounds: int) -> float:
        """For one round, by the way that was fastest when the case came first: all workers go together."""
        if case not in self._best:
            tried = {way: min(self._go(case, way, rounds) for _ in range(2)) for way in self.ways}
            self._best[case] = min(tried, key=tried.__getitem__)
        return self._go(case, self._best[case], rounds)

    def _go(self, case: str, way: str, rounds: int) -> float:
        for worker in self.workers:
            worker.command(case=case, way=way, rounds=rounds)
        return max(float(worker.answer()["seconds"]) for worker in self.workers) / rounds

    def stop(self) -> None:
        for peer in (*self.workers, *self.others):
            peer.stop()


class Ours(Side):
    """This core: one tier."""

    def __init__(self, local: bool) -> None:
        super().__init__()
        wan = DomainSpec(scheduler_host="127.0.0.1", scheduler_port=kept_port(), num_servers=1, num_members=WORKERS)
        for role in ("scheduler", "global_server"):
            spec = NodeSpec(role=role, name=role, party="central", is_central=True, wan=wan, local=local)
            self.others.append(Peer(f"our {role}", ["-m", "geomx.node", "-"], {}, spec.to_json()))
        for rank in range(WORKERS):
            spec = NodeSpec(role="worker", name=f"worker{rank}", party=f"party{rank}", party_rank=rank, rank=rank,
                            wan=wan, local=local, world=WORKERS, world_rank=rank)  # fmt: skip
            self.workers.append(Peer(f"our worker {rank}", ["-m", "geomx.bench.our_worker"], {}, spec.to_json()))


class Stock(Side):
    """MXNet's own dist_sync, as its wheel brings it."""

    ways = ("one by one", "lists", "push_pull")

    def __init__(self) -> None:
        super().__init__()
        common = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(kept_port()), "DMLC_NUM_SERVER": "1",
                  "DMLC_NUM_WORKER": str(WORKERS), "DMLC_NODE_HOST": "127.0.0.1"}  # fmt: skip
        self.others = [_stock(role, common, role) for role in ("scheduler", "server")]
        self.workers = [_stock(f"worker {i}", common, "worker") for i in range(WORKERS)]


def _stock(name: str, common: Mapping[str, str], role: str) -> Peer:
    return Peer(f"MXNet's {name}", ["-m", "geomx.bench.stock_worker"], {**common, "DMLC_ROLE": role})
