"""One run, from the first process to the last: starts the nodes, listens to them, and ends them however it goes."""

import contextlib
import dataclasses
import itertools
import logging
import math
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geomx import timeline
from geomx.api import Launcher
from geomx.config import Config
from geomx.control import LINGER_MS, Inbox, Message
from geomx.errors import RunFailed
from geomx.launch.accounts import Accounts
from geomx.launch.blame import Blame
from geomx.launch.cluster import WAN, Cluster, cluster
from geomx.launch.ledger import Ledger
from geomx.launch.processes import Processes
from geomx.launch.progress import Live, Plain
from geomx.spec import NodeSpec
from geomx.wan import selftest

log = logging.getLogger("geomx")
TICK_S = 0.1
MOST_MESSAGES = 1000  # before looking at the processes again
GRACE_S = 1.0  # after the first sign of a failure, for the others' words about it
LAST_WORDS = ("counters", "ledger", "trace")  # a node's figures
MARGIN_S = 10.0  # nodes end by their own deadlines first, with better words than ours


@dataclass
class Outcome:
    """What a run left, also a failed one."""

    ledger: Ledger
    accounts: Accounts
    results: dict[str, dict[str, Any]] = field(default_factory=dict)  # worker -> what it returned
    nodes: list[dict[str, Any]] = field(default_factory=list)  # as in summary.json
    seconds: float = 0.0
    network: dict[str, Any] = field(default_factory=dict)  # what the launcher says about an emulated one
    reached: dict[str, float] | None = None  # the first row that reached the target


class Job:
    """A run of one config. `on_row` is given each row of metrics.jsonl."""

    def __init__(
        self,
        config: Config,
        launcher: Launcher,
        out: Path,
        display: Plain | Live,
        on_row: Callable[[dict[str, float]], None],
    ) -> None:
        self._config, self._launcher, self._display, self._on_row = config, launcher, display, on_row
        self._out, self._logs = out, out / "logs"
        self._processes = Processes()
        self._said: dict[str, dict[str, dict[str, Any]]] = {}  # kind -> node -> body
        self._nodes: list[NodeSpec] = []
        self._workers: dict[str, str] = {}
        self.outcome = Outcome(Ledger([]), self._accounts())

    def run(self) -> None:
        """Returns when all nodes have finished; raises RunFailed with the sentence for the user. Whatever happens, no
        node is left when this is over, and `outcome` says how far it came."""
        self._logs.mkdir(parents=True, exist_ok=True)
        token = secrets.token_hex(16)
        began_s = time.monotonic()
        with _control_address(self._config.launcher) as address:
            planned = cluster(
                self._config,
                token=token,
                control="",
                host=self._launcher.host,
                log=lambda n: str(self._logs / f"{n}.log"),
            )
            self._remember(planned)
            self._inbox = Inbox(address, token, frozenset(n.name for n in self._nodes))
            try:
                self._launcher.prepare(self._nodes)
                self._tell_network()
                self._conduct(planned)
            finally:
                self._end(began_s)

    def _remember(self, planned: Cluster) -> None:
        self._nodes = planned.nodes
        self._workers = {n.name: n.title for n in self._nodes if n.role == "worker"}
        self._blame = Blame(self._nodes, self._waited_for)
        self.outcome.ledger = Ledger([n.name for n in self._nodes if n.role == "worker" and not n.observes])
        self.outcome.accounts = self._accounts()

    def _accounts(self) -> Accounts:
        prices = self._config.ledger
        return Accounts(self._nodes, prices.price_per_gb, prices.currency)

    def _conduct(self, planned: Cluster) -> None:
        join_s = self._config.timeouts.join_s + MARGIN_S
        for node in planned.schedulers.values():
            self._start(node)
        self._until("listening", planned.schedulers.values(), join_s, "did not listen")
        for node in planned.located(self._ports(planned)):
            self._start(node)
        self._until("joined", self._nodes, join_s, "did not join")
        log.info("all %d nodes are up", len(self._nodes))
        self._until("done", [n for n in self._nodes if n.role == "worker"], math.inf, "did not finish")
        rest_s = self._config.timeouts.death_s + MARGIN_S
        self._until("ended", self._nodes, rest_s, "did not end after the last worker had left")
        while self._blame.since_s() is not None:  # a last word may still be on its way, else this raises
            self._serve()

    def _start(self, node: NodeSpec) -> None:
        node = self._reachable(node)
        environment = self._launcher.environment(node, len(self._workers))
        pid = self._processes.start(node, self._launcher.command(node), environment, Path(node.log))
        log.debug("%s: pid %d", node.name, pid)

    def _reachable(self, node: NodeSpec) -> NodeSpec:
        return dataclasses.replace(node, control=self._inbox.address, links=self._launcher.links())

    def _tell_network(self) -> None:
        self.outcome.network = self._launcher.told()
        for row in self.outcome.network.get("self_test", []):
            log.log(logging.INFO if row["ok"] else logging.WARNING, "network: %s", selftest.text(row))

    def _ports(self, planned: Cluster) -> dict[str, int]:
        told = self._said["listening"]
        return {
            domain: int(told[node.name]["wan" if domain == WAN else "lan"].rpartition(":")[2])
            for domain, node in planned.schedulers.items()
        }

    def _until(self, kind: str, nodes: Iterable[NodeSpec], within_s: float, otherwise: str) -> None:
        """Serves the run until all these nodes have said `kind`. Raises RunFailed for a failure, and after `within_s`
        for the first who hasn't."""
        began_s = time.monotonic()
        next_call_s = began_s + self._config.timeouts.slow_s
        while missing := [n for n in nodes if n.name not in self._said.get(kind, {})]:
            self._serve()
            now_s = time.monotonic()
            if kind == "joined" and now_s > next_call_s:
                next_call_s = now_s + self._config.timeouts.slow_s
                self._call_roll(now_s - began_s)
            if now_s - began_s > within_s:
                late = next((n for n in missing if n.name not in self._said.get("hello", {})), missing[0])
                raise RunFailed(f"{late.title} {otherwise} within {within_s:g} s; its log: {late.log}")

    def _serve(self) -> None:
        for message in itertools.islice(self._inbox.receive(TICK_S), MOST_MESSAGES):
            self._heard(message)
        for name, code in self._processes.poll():
            self._said.setdefault("ended", {})[name] = {"exit_code": code}
            self._blame.ended(name, code, time.monotonic())
        self._display.update(self.outcome.ledger, self._workers)
        since_s = self._blame.since_s()
        if since_s is not None and (time.monotonic() - since_s > GRACE_S):
            raise RunFailed(self._blame.sentence())

    def _heard(self, message: Message) -> None:
        node, body = message.sender, message.body
        ledger = self.outcome.ledger
        if message.kind == "round":
            self._rows(ledger.step(node, body))
        elif message.kind == "counters":
            ledger.count(node, body)
        elif message.kind == "ledger":
            self.outcome.accounts.take(node, body["sent"], body["work"])
            self._said.setdefault("ledger", {})[node] = {}
        elif message.kind == "trace":
            timeline.append(self._out, node, body["lines"])
        elif message.kind == "note":
            log.log(int(body.get("level", logging.INFO)), "%s: %s", node, body.get("line", ""))
        elif message.kind == "failed":
            self._blame.told(node, body["kind"], body["sentence"], time.monotonic())
        else:
            self._said.setdefault(message.kind, {})[node] = body
        if message.kind == "done":
            self._blame.done(node)
            if node in self._workers:
                self.outcome.results[node] = body
                self._rows(ledger.left(node) if node in ledger.workers else [])

    def _rows(self, rows: list[dict[str, float]]) -> None:
        goal = self._config.target.accuracy
        for row in rows:
            if goal is not None and self.outcome.reached is None and row.get("accuracy", 0.0) >= goal:
                self.outcome.reached = row
            self._on_row(row)

    def _call_roll(self, after_s: float) -> None:
        up = self._said.get("hello", {})
        missing = [n.title for n in self._nodes if n.name not in up]
        if missing:
            log.warning("after %.0f s %d of %d nodes are up; missing: %s", after_s, len(up), len(self._nodes),
                        ", ".join(missing))  # fmt: skip
        else:
            log.warning("after %.0f s all nodes are up, but they have not all found each other", after_s)

    def _waited_for(self, node: NodeSpec) -> str:
        """'waited for: its part of round 18, by worker 0 of party a and 2 more'"""
        ledger = self.outcome.ledger
        # A step shows that all have joined, even where the word of one of them is still on its way.
        if not ledger.last_step(None) and len(self._said.get("joined", {})) < len(self._nodes):
            return "the cluster was still waiting for all nodes to join"
        own = node.name if node.name in ledger.workers else None
        waiting = [self._workers[w] for w in self._workers if w != node.name and w not in self.outcome.results]
        by = f", by {_few(waiting)}" if waiting else ""
        return f"waited for: its part in round {ledger.last_step(own) + 1}{by}"

    def _end(self, began_s: float) -> None:
        """No node is left when this returns; an interrupt while it works only makes it quicker."""
        try:
            self._processes.stop(self._config.launcher.stop_s)
            for message in self._inbox.rest(self._have_told, LINGER_MS / 1000):
                if message.kind in LAST_WORDS:
                    self._heard(message)
            timeline.assemble(self._out, {n.title: n.name for n in self._nodes})
            for node, counters in self.outcome.ledger.counters.items():
                self.outcome.accounts.estimate(node, counters)
        finally:
            self._processes.kill()
            self.outcome.network |= self._launcher.told()
            self._inbox.close()
            self._launcher.cleanup()
            self._display.close()
            self.outcome.seconds = time.monotonic() - began_s
            self.outcome.nodes = [self._entry(node) for node in self._nodes]

    def _have_told(self) -> bool:
        """Have all that ended well told their last figures?"""
        well = {name for name, code in self._processes.exit_codes.items() if code == 0}
        return well <= self._said.get("ledger", {}).keys()

    def _entry(self, node: NodeSpec) -> dict[str, Any]:
        hello = self._said.get("hello", {}).get(node.name, {})
        return {
            "name": node.name,
            "role": "global_scheduler" if node.name == "global_scheduler" else node.role,
            "party": node.party,
            "rank": node.rank,
            "pid": hello.get("pid"),
            "host": hello.get("host"),
            "exit_code": self._processes.exit_codes.get(node.name),
            "weights_hash": self.outcome.results.get(node.name, {}).get("weights_hash") or None,
        }


@contextlib.contextmanager
def _control_address(options: Any) -> Iterator[str]:
    """Where the launcher listens: a socket file that only this user can open, or TCP where the config says so."""
    host = getattr(options, "control_host", "")
    if host:
        yield f"tcp://{host}:*"
        return
    folder = tempfile.mkdtemp(prefix="geomx-")
    if len(folder) > 90:  # the kernel allows 107 characters
        Path(folder).rmdir()
        folder = tempfile.mkdtemp(prefix="geomx-", dir="/tmp")
    try:
        yield f"ipc://{folder}/control"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _few(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
