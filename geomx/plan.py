"""Config + tensor -> where its shards are, how they are cut, and which codec carries them. Pure, but for counting what
each server holds so far."""

import math
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from geomx.api import Overlay, Placement, Scheduler, Shard, Tensor
from geomx.config import CENTRAL
from geomx.config.root import Config
from geomx.config.topology import measured_bytes
from geomx.errors import ConfigError
from geomx.plugins import imported
from geomx.wan.line import line_of

if TYPE_CHECKING:
    from geomx import _core

MOST_ELEMENTS = 2**31  # of a part; whatever is said beyond it cuts no more


def place(options: Any, tensors: Sequence[Tensor], held: Sequence[float]) -> list[list[Shard]]:
    """The built-in placement: large tensors evenly over all servers, a small one where least is held so far."""
    loads, found = list(held), []
    for tensor in tensors:
        found.append(_place_one(options.bigarray_bound, tensor, loads))
        for shard in found[-1]:
            loads[shard.server] += tensor.bytes * shard.length / max(tensor.length, 1)
    return found


def _place_one(bound: int, tensor: Tensor, loads: Sequence[float]) -> list[Shard]:
    if tensor.length <= bound or len(loads) == 1:
        return [Shard(min(range(len(loads)), key=loads.__getitem__), 0, tensor.length)]
    bounds = [tensor.length * i // len(loads) for i in range(len(loads) + 1)]
    return [Shard(i, start, end - start) for i, (start, end) in enumerate(pairwise(bounds)) if end > start]


class Planner:
    """What `_core.Node.set_planner` takes. The authority asks it once a key; an own object for each node."""

    def __init__(self, config: Config) -> None:
        self._held: list[float] = []
        self._announced: dict[str, Tensor] = {}
        self._placed: dict[str, list[Shard]] = {}
        self._lock = threading.Lock()  # who declares announces; the node's own thread asks
        self.use(config)

    def use(self, config: Config) -> None:
        """For keys that are declared from now on."""
        self._options = config.topology
        self._place: Placement = imported(config.topology.placement, "topology")
        self._config = config
        self._measured: dict[str, float] | None = None  # read where it is asked for: others needn't have the file

    def announce(self, tensors: Sequence[tuple[str, int, str]]) -> None:
        """(name, length, dtype) of tensors that are about to be declared together."""
        with self._lock:
            for name, length, dtype in tensors:
                if name not in self._placed:
                    self._announced[name] = self._tensor(name, length, dtype)

    def shards(self, name: str, length: int, num_servers: int, dtype: str = "float32") -> list[Shard]:
        """Raises ConfigError where a placement plugin's shards don't cover the tensor exactly once."""
        with self._lock:
            if name in self._announced:
                self._place_all(list(self._announced.values()), num_servers)
                self._announced.clear()
            elif name not in self._placed:
                self._place_all([self._tensor(name, length, dtype)], num_servers)
            return self._placed.pop(name)

    def __call__(self, name: str, shape: tuple[int, ...], dtype: str, num_servers: int) -> "_core.Plan":
        from geomx import _core

        found = self.shards(name, math.prod(shape), num_servers, dtype)
        cut = part_length(self._config, name, math.prod(shape), dtype)
        return _core.Plan([_core.Shard(s.server, s.offset, s.length) for s in found], cut)

    def _tensor(self, name: str, length: int, dtype: str) -> Tensor:
        expected = length * self._config.compression.bytes_per_element(name, length, dtype)
        if self._measured is None:
            run = self._config.topology.measured
            self._measured = measured_bytes(run) if run else {}
        return Tensor(name, length, self._measured.get(name, expected))

    def _place_all(self, tensors: Sequence[Tensor], num_servers: int) -> None:
        self._held += [0] * (num_servers - len(self._held))
        found = self._place(self._options, tensors, tuple(self._held))
        for tensor, shards in zip(tensors, found, strict=True):
            _check_cover(shards, tensor.name, tensor.length, num_servers)
            for shard in shards:
                self._held[shard.server] += tensor.bytes * shard.length / max(tensor.length, 1)
            self._placed[tensor.name] = list(shards)


def part_length(config: Config, name: str = "", length: int = 0, dtype: str = "float32") -> int:
    """Elements of a part of this tensor at most, 0: not cut. The scheduler's plugin says; without one, the built-in's
    default. An overlay may want shorter ones, so that relays work at the same time; so may a transport that ranks or
    loses parts one by one: so many that they take about its block_bytes on the wire."""
    width = config.compression.bytes_per_element(name, length, dtype)
    wanted = [scheduler_of(config).part_length(line_of(config, CENTRAL), width)]
    wanted += [o.part_length(length, width) for o in config.scheduler.values() if isinstance(o, Overlay)]
    if block := getattr(config.transport, "block_bytes", 0):
        wanted.append(max(1, int(block / max(width, 1e-6) + 1e-6)))
    return min(MOST_ELEMENTS, *filter(None, wanted)) if any(wanted) else 0


def scheduler_of(config: Config) -> Scheduler:
    """What fills that place; the built-in where nothing does."""
    from geomx.config.techniques import Fifo

    return next((o for o in config.scheduler.values() if isinstance(o, Scheduler)), Fifo())


def _check_cover(shards: Sequence[Shard], name: str, length: int, num_servers: int) -> None:
    at, well = 0, bool(shards)
    for shard in sorted(shards, key=lambda s: s.offset):
        well = well and shard.offset == at and 0 <= shard.server < num_servers and (shard.length > 0) == (length > 0)
        at += shard.length
    if not well or at != length:
        raise ConfigError(
            f"topology: the shards of {name} must cover its {length} elements once, on servers below {num_servers}; "
            f"given: {shards}"
        )


if __name__ == "__main__":
    import sys

    from geomx.predict import main

    sys.exit(main())
