"""launcher=local: every node is a process of this machine, or of whatever `launcher.exec_prefix` leads to."""

import functools
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

from geomx.api import ConfigError, Launcher
from geomx.config import Config
from geomx.spec import NodeSpec
from geomx.wan.plan import resolve
from geomx.wan.shaper import Shaped

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class LocalLauncher(Launcher):
    options: Any  # geomx.config.surroundings.Local
    _shaped: Shaped | None = None

    def configure(self, config: Config) -> None:
        self._wan = resolve(config.network, config.topology)

    def prepare(self, nodes: Sequence[NodeSpec]) -> None:
        """A name that nobody knows is told now: sockets would wait for it in silence. Raises ConfigError."""
        for node in nodes:
            if node.party not in self.options.exec_prefix and not _resolves(node.host):
                raise ConfigError(f"topology.hosts.{node.party}: {node.host!r} given, there is no host of that name")
        if not self._wan.is_plain:
            self._shaped = Shaped(self._wan)

    def links(self) -> str:
        return self._shaped.file if self._shaped else ""

    def told(self) -> dict[str, Any]:
        return self._shaped.told() if self._shaped else {}

    def cleanup(self) -> None:
        if self._shaped:
            self._shaped.close()

    def command(self, node: NodeSpec) -> list[str]:
        prefix = self.options.exec_prefix.get(node.party, [])
        return [*prefix, sys.executable, "-u", "-m", "geomx.node", "-"]

    def environment(self, node: NodeSpec, num_workers: int) -> dict[str, str]:
        """The launcher's own, without what would make MXNet take a role of its own in our place."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("DMLC_")}
        threads = self.options.threads or max(1, len(os.sched_getaffinity(0)) // num_workers)
        return {**dict.fromkeys(THREADS, str(threads)), **inherited, "PYTHONFAULTHANDLER": "1"}


@functools.cache
def _resolves(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):
        return False
