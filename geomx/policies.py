"""What the core asks of the plugins that a run has chosen, kind by kind, in the core's own words.

One of each for each node. They start as the node's own configuration says and change when the run's settings or a
script do. Touched by the main thread before start() and by the node's own thread afterwards.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from geomx import _core
from geomx.api import (
    CodecChoice,
    Line,
    NativeCodec,
    NativePlugin,
    OverlayChoice,
    PythonCodec,
    TransportChoice,
)
from geomx.config import Config
from geomx.errors import ConfigError
from geomx.options import shared
from geomx.plan import Planner, scheduler_of
from geomx.spec import NodeSpec, setting
from geomx.wan.line import line_of

MOST_CREDIT = 1 << 50  # bytes; whatever is said beyond it binds no more
MOST_RANK = 2**30


class Policies:
    """All of one node's; made, the node asks them."""

    def __init__(self, node: _core.Node, config: Config, spec: NodeSpec) -> None:
        """Raises ConfigError for a codec or a library that can't be loaded."""
        loaded = _Loaded(node)
        planner, codecs, transports = Planner(config), Codecs(loaded), Transports(loaded)
        schedulers, overlays = Schedulers(spec.party), Overlays(loaded)
        self._all = (planner, codecs, transports, schedulers, overlays)
        self.use(config)
        node.set_planner(planner)
        node.set_policy(codecs.choose)
        node.set_transport(transports.choose)
        node.set_scheduler(schedulers.credit, schedulers.rank)
        node.set_overlay(overlays.choose)

    def use(self, config: Config) -> None:
        """From now on; keys that are declared keep what they have. Raises ConfigError."""
        for one in self._all:
            one.use(config)


class _Loaded:
    """What plugins bring to one node: each library and each codec once, whoever asks for it."""

    def __init__(self, node: _core.Node) -> None:
        self._node = node
        self._there: set[Any] = set()

    def need(self, wanted: Iterable[NativeCodec | NativePlugin | PythonCodec]) -> None:
        for one in wanted:
            what = one if isinstance(one, PythonCodec) else one.path
            if what in self._there:
                continue
            if isinstance(one, PythonCodec):
                self._node.add_codec(one.name, one.make)
            else:
                self._node.load_plugin(str(one.path))
            self._there.add(what)


class Codecs:
    """Which codec carries a tensor."""

    def __init__(self, loaded: _Loaded) -> None:
        self._loaded = loaded
        self._text = ""

    def choose(self, name: str, length: int, dtype: str, tier: str, direction: str) -> _core.CodecChoice:
        """Asked once a key."""
        return in_core(self._policy.choose(name, length, dtype, tier, direction))

    def use(self, config: Config) -> None:
        text = setting(shared(config.compression))
        if text != self._text:  # a policy may be costly to make
            self._text, self._policy = text, config.compression.policy()
            self._loaded.need(config.compression.codecs())


class Transports:
    """Which transport serves this node between parties."""

    def __init__(self, loaded: _Loaded) -> None:
        self._loaded = loaded

    def choose(self) -> TransportChoice | None:
        """Asked once all settings are known."""
        choice: TransportChoice | None = self._options.choice()
        return choice

    def use(self, config: Config) -> None:
        self._options = config.transport
        self._loaded.need(self._options.libraries())


class Schedulers:
    """What leaves first, and how much may be on its way."""

    def __init__(self, party: str) -> None:
        self._party = party

    def use(self, config: Config) -> None:
        self._config = config
        self._options = scheduler_of(config)

    def credit(self, tier: str) -> tuple[int, bool, bool]:
        """(bytes, whether it grows with what is measured, whether keys are ranked). Asked once all settings are
        known."""
        line = line_of(self._config, self._party) if tier == "wan" else Line()
        bytes_ = min(max(1, int(self._options.credit_bytes(tier, line))), MOST_CREDIT)
        return bytes_, bool(self._options.credit_grows(tier, line)), self._options.ranks

    def rank(self, name: str, order: int, length: int, tier: str) -> int:
        """Asked once a key. Raises ConfigError for a rank that is out of bounds."""
        found = int(self._options.rank(name, order, length, tier))
        if not -MOST_RANK <= found <= MOST_RANK:
            raise ConfigError(f"scheduler: rank {found} given for {name}, allowed is -2**30 to 2**30")
        return found


class Overlays:
    """Which overlay serves this node in each tier."""

    def __init__(self, loaded: _Loaded) -> None:
        self._loaded = loaded

    def choose(self, tier: str) -> OverlayChoice | None:
        """Asked once all settings are known; tier: lan or wan."""
        choice: OverlayChoice | None = self._options.choice(tier) if self._options else None
        return choice

    def use(self, config: Config) -> None:
        self._options = _overlay(config.scheduler)
        self._loaded.need(self._options.libraries() if self._options else ())


def in_core(choice: CodecChoice) -> _core.CodecChoice:
    return _core.CodecChoice(choice.name, dict(choice.params))


def _overlay(schedulers: Mapping[str, Any]) -> Any:
    """Options of the one that fills that place; None: the star."""
    return next((options for options in schedulers.values() if "overlay" in getattr(options, "fills", ())), None)
