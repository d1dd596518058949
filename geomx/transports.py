"""Which transport serves this node between parties: the bridge from a transport plugin to the core's policy.

Touched by the main thread before start() and by the node's own thread afterwards.
"""

from typing import TYPE_CHECKING, Any

from geomx.api import Transport, TransportChoice

if TYPE_CHECKING:
    from geomx import _core


class Transports:
    """The transport of one node: starts as the config says, changes when the run's settings do."""

    def __init__(self, node: "_core.Node", options: Transport) -> None:
        self._node = node
        self._loaded: set[Any] = set()
        self.use(options)

    def choose(self) -> TransportChoice | None:
        """Asked by the core, once all settings are known."""
        return self._options.choice()

    def use(self, options: Transport) -> None:
        """Raises ConfigError for a library that can't be loaded."""
        self._options = options
        for library in options.libraries():
            if library not in self._loaded:
                self._node.load_plugin(str(library.path))
                self._loaded.add(library)
