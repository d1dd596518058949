"""What TCP/IP adds to the ledger's bytes on the way, and how well the sum agrees with what interfaces counted."""

from collections.abc import Mapping
from typing import Any

SEGMENT, HEADERS = 1448, 52  # of 1,500 bytes: IP 20, TCP 20 and its timestamps 12
SEGMENTS_ACKNOWLEDGED = 2  # by one packet without data


def on_the_wire(there: float, back: float) -> float:
    """IP bytes one way, of a stream that carries `there` bytes this way and `back` bytes the other way."""
    return there * (1 + HEADERS / SEGMENT) + back / SEGMENT / SEGMENTS_ACKNOWLEDGED * HEADERS


def agreement(between: Mapping[tuple[str, str], int], links: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Of the ledger with the interfaces, by party: what arrived there. Packets that were dropped on the way and sent
    again stand only once in what arrived.

    between: (from, to) -> bytes by the ledger. links: party -> down_bytes, as the party's interface received.
    """
    found = {}
    for party, counted in links.items():
        to = sum(b for (_, receiver), b in between.items() if receiver == party)
        back = sum(b for (sender, _), b in between.items() if sender == party)
        wire = on_the_wire(to, back)
        found[party] = {"ledger_bytes": to, "modelled_bytes": round(wire), "interface_bytes": counted["down_bytes"],
                        "off": counted["down_bytes"] / wire - 1 if wire else None}  # fmt: skip
    return found


def text(found: Mapping[str, Mapping[str, Any]]) -> str:
    """'the ledger and the interfaces agree within 0.8 %'"""
    worst = max((abs(row["off"]) for row in found.values() if row["off"] is not None), default=0.0)
    return f"the ledger, with TCP/IP's overhead, and the interfaces' counters agree within {worst:.1%}"
