"""Which codec carries a tensor on this node: the bridge from a compression plugin to the core's policy.

Knows the core's Node only by the calls that it makes. Touched by the main thread before start() and by the node's own
thread afterwards.
"""

from typing import TYPE_CHECKING, Any

from geomx.api import CodecChoice, Compression, NativeCodec
from geomx.options import shared
from geomx.spec import setting

if TYPE_CHECKING:
    from geomx import _core


class Codecs:
    """The compression of one node: starts as the config says, changes when the run's settings or a script do."""

    def __init__(self, node: "_core.Node", options: Compression) -> None:
        self._node = node
        self._loaded: set[Any] = set()
        self._text = ""
        self.use(options)

    def choose(self, name: str, length: int, dtype: str, tier: str, direction: str) -> CodecChoice:
        """Asked by the core, once a key."""
        return self._policy.choose(name, length, dtype, tier, direction)

    def use(self, options: Compression) -> None:
        """From now on; keys that have their codecs keep them. Raises ConfigError for codecs that can't be loaded."""
        text = setting(shared(options))
        if text == self._text:
            return
        self._text, self._policy = text, options.policy()
        for codec in options.codecs():
            if codec in self._loaded:
                continue
            if isinstance(codec, NativeCodec):
                self._node.load_plugin(str(codec.path))
            else:
                self._node.add_codec(codec.name, codec.make)
            self._loaded.add(codec)
