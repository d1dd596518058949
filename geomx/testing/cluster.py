"""A whole cluster in one process, for tests: the real nodes, each on its own threads, over loopback TCP.

    with LocalCluster(parties=[2, 1], global_servers=2, config={"compression": {"name": "fp16"}}) as cluster:
        sums = cluster.run(lambda worker: pushed_and_pulled(worker))

`run` calls a function once for each worker, on a thread of its own, and returns the results by the workers' order. An
exception of one ends the run for all and is raised from `run`, the first one where there are several; so is a worker
that isn't done in time. At the end of the `with` all workers leave and all nodes are closed; a node that failed in the
meantime raises then. Once the cluster is forgotten too, no thread and no socket is left.

The nodes are made as `python -m geomx.node` makes them, from a configuration: whatever can be chosen by name can be
chosen here. Codecs that belong to no plugin yet come by `codecs` and `choose`.
"""

import dataclasses
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from geomx import _core
from geomx.api import Codec, CodecChoice
from geomx.config import judge, load, settings
from geomx.kv import Store
from geomx.launch.cluster import WAN, Cluster, cluster
from geomx.node import Built, build
from geomx.policies import in_core
from geomx.spec import NodeSpec, setting

T = TypeVar("T")
CLOSE_S = 30.0  # nodes that are ended end at once; what is there to wait for is a busy machine
Choose = Callable[[str, int, str, str, str], CodecChoice]

# Which settings a group of the configuration speaks of; what isn't configured isn't set explicitly.
_SETTINGS = {"compression": ["compression"], "sync": ["sync", "optimizer"], "scheduler": ["scheduler"],
             "transport": ["transport"], "topology": ["placement"], "deterministic": ["deterministic"]}  # fmt: skip


class Worker(Store):
    """One worker's store; `node` is the core's node, `spec` what it was told."""


class LocalCluster:
    """All nodes of a run; entered, they have joined.

    parties           workers of each party; they are called party0, party1, ...
    global_servers    servers that hold the model
    central_workers   workers of the central party; the first is the master worker
    central_trains    central workers contribute; else the master worker only observes, and there is one
    flat              one tier: every worker is a member of the WAN
    config            groups of the configuration as plain data: {"sync": {"name": "mixed", "staleness": 2}};
                      what is given is also set explicitly on every node, as in a run of the launcher
    settings          more explicit settings, {"optimizer": {"name": "sgd", "learning_rate": 0.1}}
    codecs            names -> makers of codecs in Python: {"mine": lambda params: Mine()}
    choose            which codec for (name, length, dtype, tier, direction); else the configured compression says
    change            (spec) -> spec, for nodes that are to be told something else than the others
    deadline_s        for joining, for each run() and for leaving
    """

    def __init__(
        self,
        parties: Sequence[int] = (1,),
        *,
        global_servers: int = 1,
        central_workers: int = 0,
        central_trains: bool = False,
        flat: bool = False,
        config: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        codecs: Mapping[str, Callable[[dict[str, Any]], Codec]] | None = None,
        choose: Choose | None = None,
        change: Callable[[NodeSpec], NodeSpec] = lambda spec: spec,
        deadline_s: float = 30.0,
    ) -> None:
        if central_workers > 1 and not central_trains:
            raise ValueError(f"central_workers: {central_workers} given; one is allowed where central_trains is false")
        if flat and central_workers:
            raise ValueError("central_workers: a flat topology has no central party's workers")
        topology = {"name": "flat" if flat else "hips", "global_servers": global_servers,
                    "parties": [{"name": f"party{i}", "workers": n} for i, n in enumerate(parties)]}  # fmt: skip
        if not flat:
            topology |= {"central_workers": central_workers if central_trains else 0,
                         "observer": "yes" if central_workers and not central_trains else "no"}  # fmt: skip
        given = dict(config or {})
        self._settings = {name: setting(value) for name, value in (settings or {}).items()}
        self._explicit = [name for group in given for name in _SETTINGS.get(group, [])]
        self.config = load({**given, "topology": {**topology, **given.get("topology", {})}})
        judge(self.config)
        self._codecs, self._choose, self._change = dict(codecs or {}), choose, change
        self.deadline_s = deadline_s
        self.nodes: dict[str, _core.Node] = {}  # by name: global_scheduler, global_server0, party0.server, ...
        self.workers: list[Worker] = []  # those that train: by party, then by rank, central ones last
        self.master: Worker | None = None  # one that only observes
        self.agreed: dict[str, dict[str, str]] = {}  # by node: the settings that it was told when it had joined
        self._built: list[Built] = []
        self._serving: dict[str, threading.Thread] = {}
        self._failures: list[Exception] = []

    # --- life ---------------------------------------------------------------------------------------------------
    def start(self) -> "LocalCluster":
        """Joins. Raises what the first node raised that couldn't."""
        try:
            self._start(self._plan())
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> None:
        """All workers leave, all nodes are closed. Raises the first failure of a node."""
        try:
            self._each([(w.spec.name, w.leave) for w in self._everybody()], "leave")
            self._join_servers(self.deadline_s)
        finally:
            self.close()
        if self._failures:
            raise self._failures[0]

    def close(self) -> None:
        """Ends all nodes as they are."""
        for built in self._built:
            built.close()
        self._join_servers(CLOSE_S)

    def __enter__(self) -> "LocalCluster":
        return self.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.stop()
        else:
            self.fail(f"the test failed: {error}")
            self.close()

    # --- work ---------------------------------------------------------------------------------------------------
    def run(self, work: Callable[[Worker], T], master: Callable[[Worker], Any] | None = None) -> list[T]:
        """work(worker) on every worker that trains, at once; `master` on the one that observes. The results are in the
        order of `workers`, the master's last if it was asked."""
        tasks = [(w.spec.name, _bound(work, w)) for w in self.workers]
        if master is not None:
            if self.master is None:
                raise ValueError("run: there is no master worker that observes; central_workers=1 makes one")
            tasks.append((self.master.spec.name, _bound(master, self.master)))
        return self._each(tasks, "run")

    def fail(self, reason: str) -> None:
        """Ends the run on all nodes, as an exception of a worker does."""
        for built in self._built:
            with suppress(_core.Error):
                built.node.fail(reason)

    def counters(self, *roles: str) -> dict[str, float]:
        """What all nodes, or those of these roles, have counted so far, added up: see `_core.Node.counters`."""
        total: dict[str, float] = {}
        for name, node in self.nodes.items():
            if not roles or self._roles[name] in roles:
                for what, count in node.counters().items():
                    total[what] = total.get(what, 0) + count
        return total

    # --- how ----------------------------------------------------------------------------------------------------
    def _plan(self) -> Cluster:
        plan = cluster(self.config, token="local-cluster", control="", host=lambda _: "127.0.0.1", log=lambda _: "")
        own = settings(self.config)
        given = {**{name: own[name] for name in self._explicit}, **self._settings}
        told = [dataclasses.replace(s, settings=given, join_s=min(s.join_s, self.deadline_s)) for s in plan.nodes]
        count = len(plan.schedulers)
        return Cluster(dict(zip(plan.schedulers, map(self._change, told[:count]), strict=True)),
                       [self._change(spec) for spec in told[count:]])  # fmt: skip

    def _start(self, plan: Cluster) -> None:
        self._roles = {spec.name: spec.role for spec in plan.nodes}
        ports = {}
        for domain, spec in plan.schedulers.items():
            built = self._make(spec)
            built.start()
            ports[domain] = int(built.node.addresses["wan" if domain == WAN else "lan"].rpartition(":")[2])
        others = [(spec, self._make(spec)) for spec in plan.located(ports)]
        told = self._each([(spec.name, built.start) for spec, built in others], "join")
        self.agreed = {spec.name: settings for (spec, _), settings in zip(others, told, strict=True)}
        for spec, built in others:
            if spec.role == "worker":
                self._add_worker(spec, built)
        self._serve()

    def _make(self, spec: NodeSpec) -> Built:
        built = build(spec)
        for name, make in self._codecs.items():
            built.node.add_codec(name, make)
        if choose := self._choose:
            built.node.set_policy(lambda *asked: in_core(choose(*asked)))
        self._built.append(built)
        self.nodes[spec.name] = built.node
        return built

    def _add_worker(self, spec: NodeSpec, built: Built) -> None:
        worker = Worker(built.node, spec, closer=built.close)
        if worker.trains:
            self.workers.append(worker)
        else:
            self.master = worker

    def _everybody(self) -> list[Worker]:
        return self.workers + ([self.master] if self.master else [])

    def _serve(self) -> None:
        for name, node in self.nodes.items():
            if self._roles[name] != "worker":
                thread = threading.Thread(target=self._serve_one, args=(node,), name=name, daemon=True)
                self._serving[name] = thread
                thread.start()

    def _serve_one(self, node: _core.Node) -> None:
        try:
            node.serve()
        except _core.Error as e:
            self._failures.append(e)

    def _join_servers(self, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        for name, thread in self._serving.items():
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                raise TimeoutError(f"{name} did not end within {within_s:g} s")

    def _each(self, tasks: Sequence[tuple[str, Callable[[], Any]]], what: str) -> list[Any]:
        """All at once; the first error ends the run for the others."""
        results: list[Any] = [None] * len(tasks)
        errors: list[BaseException] = []
        changed = threading.Condition()

        def one(i: int, task: Callable[[], Any]) -> None:
            try:
                results[i] = task()
            except BaseException as e:
                with changed:
                    errors.append(e)
                    changed.notify_all()

        threads = [threading.Thread(target=one, args=(i, task), name=name, daemon=True)
                   for i, (name, task) in enumerate(tasks)]  # fmt: skip
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + self.deadline_s
        while any(t.is_alive() for t in threads) and not errors and time.monotonic() < deadline:
            with changed:
                changed.wait(0.005)
        if errors:
            self.fail(f"{type(errors[0]).__name__}: {errors[0]}")
        elif late := [t for t in threads if t.is_alive()]:
            errors.append(TimeoutError(_late(late, what, self.deadline_s)))
            self.fail(str(errors[0]).partition("\n")[0])
        for thread in threads:
            thread.join(5)
        if errors:
            raise errors[0]
        return results


def _bound(work: Callable[[Worker], T], worker: Worker) -> Callable[[], T]:
    return lambda: work(worker)


def _late(threads: Sequence[threading.Thread], what: str, deadline_s: float) -> str:
    names = ", ".join(t.name for t in threads)
    frames = sys._current_frames()
    stacks = [f"{t.name}:\n" + "".join(traceback.format_stack(frames[t.ident])) for t in threads if t.ident in frames]
    return f"{what}: {names} not done after {deadline_s:g} s\n" + "\n".join(stacks)
