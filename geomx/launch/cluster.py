"""Config -> the nodes of a run. Pure: no process, no socket."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from geomx.config import CENTRAL, Config, Party, explicit, host_of, parties, settings
from geomx.options import plain
from geomx.spec import DomainSpec, NodeSpec

WAN = "wan"  # names the WAN domain where a LAN domain is named by its party


@dataclass(frozen=True)
class Cluster:
    """All nodes of a run; a scheduler's port is 0 until it has told where it listens."""

    schedulers: dict[str, NodeSpec]  # domain (WAN or a party) -> its scheduler
    others: list[NodeSpec]

    @property
    def nodes(self) -> list[NodeSpec]:
        return [*self.schedulers.values(), *self.others]

    def located(self, ports: dict[str, int]) -> list[NodeSpec]:
        """`others`, told where each domain's scheduler listens."""
        return [_located(node, ports) for node in self.others]


def cluster(
    config: Config, *, token: str, control: str, host: Callable[[str], str], log: Callable[[str], str]
) -> Cluster:
    """host(party): where others reach a party's nodes if the config doesn't say; log(name): a node's log file."""
    return _Maker(config, token, control, host, log).make()


class _Maker:
    def __init__(
        self, config: Config, token: str, control: str, host: Callable[[str], str], log: Callable[[str], str]
    ) -> None:
        self._config, self._host, self._log = config, host, log
        self._parties = parties(config.topology)
        self._unreachable = {p.name for p in self._parties if not p.reachable}
        self._central_workers = getattr(config.topology, "central_workers", 0)
        self._observers = 1 if _has_observer(config) else 0
        self._common = {
            "token": token,
            "control": control,
            "settings": explicit(config) if hasattr(config.task, "script") else settings(config),
            "config": plain(config),
            "seed": config.seed,
            "deterministic": config.deterministic,
            "local": getattr(config.transport, "local", True),
            "central_trains": self._central_workers > 0,
            **plain(config.timeouts),
        }
        self._world = sum(p.workers for p in self._parties) + self._central_workers

    def make(self) -> Cluster:
        wan = self._node(
            "global_scheduler", CENTRAL, role="scheduler", wan=self._wan(), port=self._config.topology.port
        )
        schedulers = {WAN: dataclasses.replace(wan, is_central=True)}
        for party, lan in self._lans().items():
            schedulers[party] = self._node(f"{party}.scheduler", party, role="scheduler", lan=lan)
        return Cluster(schedulers, [*self._global_servers(), *self._local_servers(), *self._workers()])

    def _lans(self) -> dict[str, DomainSpec]:
        """LAN domains by party; none in a flat topology, and none in a central party without workers."""
        if self._config.topology.tiers == 1:
            return {}
        found = {p.name: self._lan(p.name, 1, p.workers) for p in self._parties}
        if members := self._central_workers + self._observers:
            found[CENTRAL] = self._lan(CENTRAL, self._config.topology.global_servers, members)
        return found

    def _global_servers(self) -> Iterator[NodeSpec]:
        for rank in range(self._config.topology.global_servers):
            yield self._node(
                f"global_server{rank}", CENTRAL, role="global_server", rank=rank, wan=self._wan(),
                lan=self._lans().get(CENTRAL), is_central=True,
            )  # fmt: skip

    def _local_servers(self) -> Iterator[NodeSpec]:
        for party, lan in self._lans().items():
            if party != CENTRAL:
                yield self._node(f"{party}.server", party, role="local_server", rank=0, lan=lan, wan=self._wan())

    def _workers(self) -> Iterator[NodeSpec]:
        lans, world_rank = self._lans(), 0
        if self._observers:
            yield self._node(
                "master", CENTRAL, role="worker", rank=0, lan=lans[CENTRAL], is_central=True, is_master=True,
                world=self._world,
            )  # fmt: skip
        for party in [*self._parties, Party(CENTRAL, self._central_workers)]:
            for rank in range(party.workers):
                lan = lans.get(party.name)
                yield self._node(
                    f"{party.name}.worker{rank}", party.name, role="worker", rank=rank if lan else world_rank, lan=lan,
                    wan=None if lan else self._wan(), is_central=party.name == CENTRAL,
                    is_master=party.name == CENTRAL and rank == 0, world=self._world, world_rank=world_rank,
                )  # fmt: skip
                world_rank += 1

    def _node(self, name: str, party: str, **fields: object) -> NodeSpec:
        order = [p.name for p in self._parties] + [CENTRAL]
        made = {
            **self._common, "name": name, "party": party, "party_rank": order.index(party), "host": self._at(party),
            "log": self._log(name), "reachable": party not in self._unreachable, **fields,
        }  # fmt: skip
        return NodeSpec(**made)  # type: ignore[arg-type]

    def _wan(self) -> DomainSpec:
        flat = self._config.topology.tiers == 1
        return DomainSpec(
            scheduler_host=self._at(CENTRAL),
            scheduler_port=self._config.topology.port,
            num_servers=self._config.topology.global_servers,
            num_members=self._world if flat else len(self._parties),
        )

    def _lan(self, party: str, servers: int, workers: int) -> DomainSpec:
        return DomainSpec(scheduler_host=self._at(party), scheduler_port=0, num_servers=servers, num_members=workers)

    def _at(self, party: str) -> str:
        return host_of(self._config.topology, party) or self._host(party)


def _has_observer(config: Config) -> bool:
    """A script waits for a master worker to configure the run; the built-in tasks do without."""
    if config.topology.tiers == 1 or getattr(config.topology, "central_workers", 0):
        return False
    wanted = getattr(config.topology, "observer", "no")
    return wanted == "yes" or (wanted == "auto" and hasattr(config.task, "script"))


def _located(node: NodeSpec, ports: dict[str, int]) -> NodeSpec:
    lan = node.lan and dataclasses.replace(node.lan, scheduler_port=ports[node.party])
    wan = node.wan and dataclasses.replace(node.wan, scheduler_port=ports[WAN])
    return dataclasses.replace(node, lan=lan, wan=wan)
