"""What network= says of the way from a node to its peers in the other party: what a scheduler may go by."""

from geomx.api import Line
from geomx.config.root import Config
from geomx.config.topology import CENTRAL, parties
from geomx.wan.overhead import HEADERS, SEGMENT
from geomx.wan.plan import Wan, resolve

TCP_PAYLOAD = SEGMENT / (SEGMENT + HEADERS)  # of a packet's bytes


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
