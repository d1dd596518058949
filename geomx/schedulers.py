"""What leaves first, and how much may be on its way: the bridge from a scheduler plugin to the core's policy.

Touched by the main thread before start() and by the node's own thread afterwards.
"""

from geomx.api import Line, Scheduler
from geomx.config import CENTRAL, Config
from geomx.config.topology import parties
from geomx.errors import ConfigError
from geomx.spec import NodeSpec
from geomx.wan.overhead import HEADERS, SEGMENT
from geomx.wan.plan import Wan, resolve

MOST_RANK = 2**30
TCP_PAYLOAD = SEGMENT / (SEGMENT + HEADERS)  # of a packet's bytes


class Schedulers:
    """The scheduler of one node: starts as the config says, changes when the run's settings do."""

    def __init__(self, config: Config, spec: NodeSpec) -> None:
        self._party = spec.party
        self.use(config)

    def use(self, config: Config) -> None:
        self._config = config
        found = (options for options in config.scheduler.values() if isinstance(options, Scheduler))
        self._options: Scheduler | None = next(found, None)

    def credit(self, tier: str) -> tuple[int, bool] | None:
        """(bytes, whether it grows with what is measured). Asked by the core, once all settings are known. None: parts
        leave as pushes ask."""
        if self._options is None:
            return None
        line = line_of(self._config, self._party) if tier == "wan" else Line()
        return max(1, int(self._options.credit_bytes(tier, line))), bool(self._options.credit_grows(tier, line))

    def rank(self, name: str, order: int, length: int, tier: str) -> int:
        """Raises ConfigError for a rank that is out of bounds."""
        assert self._options is not None
        found = int(self._options.rank(name, order, length, tier))
        if not -MOST_RANK <= found <= MOST_RANK:
            raise ConfigError(f"scheduler: rank {found} given for {name}, allowed is -2**30 to 2**30")
        return found


def line_of(config: Config, party: str) -> Line:
    """Of a party's node to the central party, or of a server of the central one to the parties, as network= says."""
    wan = resolve(config.network, config.topology)
    if party not in wan.parties:
        return Line()
    others = [p for p in wan.parties if p != CENTRAL] if party == CENTRAL else [CENTRAL]
    rate = max(wan.rate(party, other) for other in others)
    delay_us = max(wan.path(party, other).delay_us + wan.path(other, party).delay_us for other in others)
    return Line(rate, delay_us / 1e6, _share_bytes(wan, config, party == CENTRAL, delay_us / 1e6))


def _share_bytes(wan: Wan, config: Config, is_down: bool, round_trip_s: float) -> float:
    """What links and their queues hold of payload, divided among the streams that meet there: of the tightest."""
    to_servers = config.topology.global_servers
    members = {p.name: 1 if config.topology.tiers == 2 else p.workers for p in parties(config.topology)}
    sides = (wan.down, wan.up) if is_down else (wan.up, wan.down)
    limits = []
    for name, queue, *rates in zip(wan.parties, wan.queue_bytes, *sides, strict=True):
        rate = rates[name == CENTRAL]
        streams = to_servers * (sum(members.values()) if name == CENTRAL else members[name])
        if rate:
            limits.append((rate * round_trip_s + queue) / streams * TCP_PAYLOAD)
    return min(limits, default=0.0)
