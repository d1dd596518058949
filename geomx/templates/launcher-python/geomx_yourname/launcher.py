"""Everything but the command is the local launcher's."""

import shutil
from collections.abc import Sequence

from geomx.api import ConfigError
from geomx.launchers.local import LocalLauncher
from geomx.spec import NodeSpec


class Launcher(LocalLauncher):
    """options: `geomx_yourname.Yourname`."""

    def prepare(self, nodes: Sequence[NodeSpec]) -> None:
        """Raises ConfigError where the command isn't there: nodes would end without a word."""
        before = self.options.before
        if before and not shutil.which(before[0]):
            raise ConfigError(f"launcher.before: {before[0]!r} given, there is no such command")
        super().prepare(nodes)

    def command(self, node: NodeSpec) -> list[str]:
        return [*self.options.before, *super().command(node)]
