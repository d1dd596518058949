"""What the network between parties is like. Which engine makes it so is the launcher's: the user-space shaper for
processes of one machine, or a packet router between network namespaces (launcher=netns).

A packet's way: its party's access link (rate), what is between the two parties (delay, jitter, loss), the other party's
access link (rate). Nodes of one party don't feel any of it.
"""

from dataclasses import dataclass
from typing import Any

from geomx.options import option


@dataclass
class Access:
    """A party's own access link, where it differs: `network.access.<party>.rate_mbit=20`; 'central' too."""

    rate_mbit: float | None = option(None, "away from the party; null: as network.rate_mbit", at_least=0)
    down_mbit: float | None = option(None, "towards the party; null: as network.down_mbit", at_least=0)
    delay_ms: float = option(0.0, "one way, on top of what is between the parties", at_least=0)
    jitter_ms: float = option(0.0, "the same", at_least=0)
    loss: float = option(0.0, "share of packets lost, each way, besides other losses", at_least=0, below=1)
    burst: float = option(1.0, "packets that are lost together, in the mean", at_least=1)
    shares: list[Any] = option([], "changes over time: [[20, 0.5], [60, 1]] halves the link's rates 20 s after the "
                               "start and gives them back at 60")  # fmt: skip


@dataclass
class Pair:
    """What is between two parties, where it differs: `network.pairs.<party>.<party>.delay_ms=40`, both ways unless the
    other way is given too."""

    delay_ms: float | None = option(None, "one way; null: as network.delay_ms", at_least=0)
    jitter_ms: float | None = option(None, "null: as network.jitter_ms", at_least=0)
    loss: float | None = option(None, "null: as network.loss", at_least=0, below=1)
    burst: float | None = option(None, "null: as network.burst", at_least=1)


@dataclass
class Network:
    """What the links between parties are like; `none` leaves them as they are."""

    name: str = option("none", "the preset; the other options change it")
    rate_mbit: float = option(
        0.0, "of each party's access link in Mbit/s, IP headers included; 0: no limit", at_least=0
    )
    down_mbit: float = option(0.0, "towards the party, where that differs; 0: as rate_mbit", at_least=0)
    delay_ms: float = option(0.0, "one way between two parties: half of the round trip", at_least=0)
    jitter_ms: float = option(0.0, "a packet's delay lies evenly within delay_ms +- jitter_ms", at_least=0)
    loss: float = option(0.0, "share of packets lost between two parties", at_least=0, below=1)
    burst: float = option(1.0, "packets that are lost together, in the mean; 1: each by itself", at_least=1)
    queue_ms: float = option(0.0, "that a full queue of an access link takes to send; 0: the longest round trip, so "
                             "that a queue holds one bandwidth-delay product", at_least=0)  # fmt: skip
    priorities: bool = option(False, "access links serve packets by their DSCP; launcher=netns only")
    trace: str = option("", "file of changes, a line each: seconds, Mbit/s, one-way delay in ms, loss; the last one "
                        "holds. For all access links and pairs")  # fmt: skip
    access: dict[str, Any] = option({}, "party -> {rate_mbit, down_mbit, delay_ms, jitter_ms, loss, burst, "
                                   "shares}")  # fmt: skip
    pairs: dict[str, Any] = option({}, "party -> party -> {delay_ms, jitter_ms, loss, burst}")
