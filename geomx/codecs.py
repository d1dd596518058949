"""Which codec carries a tensor on this node: the bridge from a compression plugin to the core's policy.

Knows the core's Node only by the calls that it makes. Touched by the main thread before start() and by the node's own
thread afterwards.
"""

import json
from typing import TYPE_CHECKING, Any

from geomx import plugins
from geomx.api import CodecChoice, Compression, NativeCodec
from geomx.errors import ConfigError
from geomx.options import shared
from geomx.spec import setting

if TYPE_CHECKING:
    from geomx import _core


class Codecs:
    """The compression of one node: starts as the config says, changes when the run's settings or a script do."""

    def __init__(self, node: "_core.Node", options: Compression) -> None:
        self._node = node
        self._loaded: set[Any] = set()
        self._use(options)

    def choose(self, name: str, length: int, dtype: str, tier: str, direction: str) -> CodecChoice:
        """Asked by the core, once a key."""
        return self._policy.choose(name, length, dtype, tier, direction)

    def configured(self, what: str, value: str) -> None:
        """A setting has arrived: `value` as in `geomx.spec`. Others than the compression are not for us."""
        if what == "compression" and value != self._text:
            self._use(from_setting(value))

    def _use(self, options: Compression) -> None:
        self._text, self._policy = setting(shared(options)), options.policy()
        for codec in options.codecs():
            if codec in self._loaded:
                continue
            if isinstance(codec, NativeCodec):
                self._node.load_plugin(str(codec.path))
            else:
                self._node.add_codec(codec.name, codec.make)
            self._loaded.add(codec)


def from_setting(value: str) -> Compression:
    """The setting "compression" -> the plugin's options. Raises ConfigError for what isn't one."""
    try:
        given = json.loads(value)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ConfigError(f'compression: {value!r} given, allowed is {{"name": a plugin, ...its options}}')
    options: Compression = plugins.options("compression", given)
    return options
