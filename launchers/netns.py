"""launcher=netns: a network namespace for each party on this machine, real TCP and UDP between them."""

from collections.abc import Sequence
from typing import Any

from geomx.api import ConfigError
from geomx.config import Config
from geomx.launchers.local import LocalLauncher
from geomx.spec import NodeSpec
from geomx.wan.plan import resolve
from geomx.wan.probe import self_test
from geomx.wan.router import Router, address, missing


class NetnsLauncher(LocalLauncher):
    options: Any  # geomx.config.surroundings.Netns
    _router: Router | None = None
    _told: dict[str, Any]

    def configure(self, config: Config) -> None:
        """Raises ConfigError where there can be no namespaces."""
        if why := missing():
            raise ConfigError(f"launcher=netns: {why}; use launcher=local, whose shaper needs nothing")
        if config.topology.hosts:
            raise ConfigError("topology.hosts: launcher=netns gives each party its address; use launcher=local with it")
        self._wan, self._seed = resolve(config.network, config.topology), config.seed
        self._told = {}

    def prepare(self, nodes: Sequence[NodeSpec]) -> None:
        self._router = Router(self._wan, self.options.congestion, self._seed)
        self._told = {"self_test": self_test(self._router, self._wan)}
        self._router.forget()

    def host(self, party: str) -> str:
        return address(self._wan, party)

    def command(self, node: NodeSpec) -> list[str]:
        assert self._router
        return [*self._router.prefix(node.party), *super().command(node)]

    def links(self) -> str:
        return ""  # the kernel's packets are what is shaped

    def told(self) -> dict[str, Any]:
        return {**self._told, **self._router.told()} if self._router else {}

    def cleanup(self) -> None:
        if self._router:
            self._router.close()
            self._router = None
