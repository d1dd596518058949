"""Which overlay serves this node in each tier: the bridge from a scheduler plugin that fills that place to the core.

Touched by the main thread before start() and by the node's own thread afterwards.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from geomx.api import OverlayChoice

if TYPE_CHECKING:
    from geomx import _core


class Overlays:
    """The overlay of one node: starts as the config says, changes when the run's settings do."""

    def __init__(self, node: "_core.Node", schedulers: Mapping[str, Any]) -> None:
        self._node = node
        self._loaded: set[Any] = set()
        self.use(schedulers)

    def choose(self, tier: str) -> OverlayChoice | None:
        """Asked by the core, once all settings are known; tier: lan or wan."""
        chosen: OverlayChoice | None = self._options.choice(tier) if self._options else None
        return chosen

    def use(self, schedulers: Mapping[str, Any]) -> None:
        """Raises ConfigError for a library that can't be loaded."""
        found = [options for options in schedulers.values() if "overlay" in getattr(options, "fills", ())]
        self._options = found[0] if found else None
        for library in self._options.libraries() if self._options else ():
            if library not in self._loaded:
                self._node.load_plugin(str(library.path))
                self._loaded.add(library)
