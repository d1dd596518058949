"""Both sides of the wan benchmark as processes: in the namespaces of one router, or on loopback, where nothing is
between them or, for ours, the shaper."""

import dataclasses
import secrets
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from geomx import _core
from geomx.bench.peers import Peer
from geomx.bench.wan_worker import WAYS
from geomx.config import CENTRAL, judge, load
from geomx.config.network import Network
from geomx.launch.cluster import cluster
from geomx.spec import NodeSpec
from geomx.testing.ports import kept_port
from geomx.wan.plan import Wan
from geomx.wan.router import Router, address

PORT = 9100  # in namespaces nobody else is there
BATCH = 32


@dataclasses.dataclass(frozen=True)
class Job:
    """What both sides train."""

    workers: int  # of each party
    model: str
    learning_rate: float
    seed: int = 1  # of first weights and the order of samples


class Side:
    """A cluster that steps on command, in one of WAYS."""

    def __init__(self) -> None:
        self.workers: list[Peer] = []
        self.others: list[Peer] = []
        self.way = WAYS[0]

    def steps(self, count: int) -> float:
        """Seconds. All workers go together; of their answers the largest."""
        return self._all(steps=count, way=self.way)["seconds"]

    def choose_way(self) -> dict[str, float]:
        """The faster one from now on. Seconds of a round by way."""
        found = {way: self._all(steps=1, way=way)["seconds"] for way in WAYS}
        self.way = min(found, key=found.__getitem__)
        return found

    def computing(self, count: int) -> float:
        """Seconds that a step takes without synchronising, all workers at once as in training."""
        return self._all(compute=count)["seconds"] / count

    def _all(self, **command: Any) -> dict[str, float]:
        for worker in self.workers:
            worker.command(**command)
        answers = [worker.answer() for worker in self.workers]
        return {name: max(float(a[name]) for a in answers) for name in ("seconds", "loss")}

    def accuracy(self) -> float:
        self.workers[0].command(evaluate=True)
        return float(self.workers[0].answer()["accuracy"])

    def ready(self) -> None:
        """When all are there and have made a step."""
        self.steps(1)

    def stop(self) -> None:
        for peer in (*self.workers, *self.others):
            peer.stop()

    def _arguments(self, kind: str, job: Job) -> list[str]:
        return ["-m", "geomx.bench.wan_worker", kind, job.model, str(BATCH), str(job.learning_rate), str(job.seed)]


class Stock(Side):
    """MXNet's own dist_sync: all workers of all parties to one server in the central party."""

    def __init__(self, router: Router | None, wan: Wan, job: Job, port: int = PORT + 100) -> None:
        super().__init__()
        parties = [p for p in wan.parties if p != CENTRAL]
        host = _hosts(router, wan)
        common = {"DMLC_PS_ROOT_URI": host(CENTRAL), "DMLC_PS_ROOT_PORT": str(port if router else kept_port()),
                  "DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": str(job.workers * len(parties))}  # fmt: skip

        def start(name: str, role: str, party: str) -> Peer:
            environ = {**common, "DMLC_ROLE": role, "DMLC_NODE_HOST": host(party)}
            return Peer(f"MXNet's {name}", self._arguments("stock", job), environ, before=_prefix(router, party))

        self.others = [start(role, role, CENTRAL) for role in ("scheduler", "server")]
        self.workers = [start(f"worker {i} of {p}", "worker", p) for p in parties for i in range(job.workers)]


class Ours(Side):
    """Two tiers; in the router's namespaces, or without one on loopback, over the shaper if `network` says anything."""

    def __init__(self, router: Router | None, network: Network, wan: Wan, job: Job, port: int = PORT,
                 **groups: Any) -> None:  # fmt: skip
        super().__init__()
        parties = [{"name": p, "workers": job.workers} for p in wan.parties if p != CENTRAL]
        optimizer = {"name": "adam", "learning_rate": job.learning_rate}
        given = {"sync": {"name": "fsa", "optimizer": optimizer}, **groups, "task": {"name": "digits"}}
        given["network"] = dataclasses.asdict(network)
        config = load({**given, "topology": {"name": "hips", "parties": parties, "observer": "no"}})
        judge(config)
        planned = cluster(config, token=secrets.token_hex(8), control="", host=_hosts(router, wan), log=lambda _: "")
        ports = {domain: port + i if router else kept_port() for i, domain in enumerate(planned.schedulers)}
        self._folder = tempfile.TemporaryDirectory(prefix="geomx-bench-")
        links = "" if router else self._links(wan)
        specs = [_at(s, ports[d], links) for d, s in planned.schedulers.items()]
        specs += [dataclasses.replace(s, links=links) for s in planned.located(ports)]
        for spec in specs:
            is_worker = spec.role == "worker"
            arguments = self._arguments("ours", job) if is_worker else ["-m", "geomx.node", "-"]
            peer = Peer(f"our {spec.title}", arguments, {}, spec.to_json(), _prefix(router, spec.party))
            (self.workers if is_worker else self.others).append(peer)

    def stop(self) -> None:
        super().stop()
        self._folder.cleanup()

    def _links(self, wan: Wan) -> str:
        file = str(Path(self._folder.name) / "links")
        _core.make_wan_links(file, len(wan.parties))
        return file


def _hosts(router: Router | None, wan: Wan) -> Callable[[str], str]:
    """party -> address of its nodes"""
    return (lambda party: address(wan, party)) if router else (lambda _: "127.0.0.1")


def _prefix(router: Router | None, party: str) -> Sequence[str]:
    return router.prefix(party) if router else ()


def _at(spec: NodeSpec, port: int, links: str) -> NodeSpec:
    """A scheduler that is told its port."""
    lan = spec.lan and dataclasses.replace(spec.lan, scheduler_port=port)
    wan = spec.wan and dataclasses.replace(spec.wan, scheduler_port=port)
    return dataclasses.replace(spec, lan=lan, wan=wan, links=links)


def wan_bytes(router: Router, parties: Sequence[str]) -> int:
    """Both ways, at the WAN devices of these parties, as the kernel counts."""
    return sum(sum(router.interface_bytes(party)) for party in parties)
