"""scheduler=p3: tensors travel in short parts, and first those that the next forward pass needs first (Jayarajan et al.
2019). On all ways: inside parties and between them, gradients up and values down."""

from dataclasses import dataclass

from geomx.api import Line, Scheduler, option

BYTES_PER_ELEMENT = 4  # of a part that is not compressed
UNKNOWN_WAN_BYTES = 2_000_000  # 320 Mbit/s at 50 ms


@dataclass
class P3(Scheduler):
    part_elements: int = option(40_000, "elements of a part at most: what is urgent waits for one part", at_least=1)
    credit_kb: int = option(
        0,
        "kilobytes on their way to a peer between parties, which nothing overtakes; 0: what network= needs to keep its "
        "links busy, 2000 where that isn't known. Less than the bandwidth-delay product leaves the link idle, more "
        "makes what is urgent wait",
        at_least=0,
    )
    lan_credit_kb: int = option(1000, "the same inside a party", at_least=1)

    def credit_bytes(self, tier: str, line: Line) -> int:
        if tier == "lan":
            return self.lan_credit_kb * 1000
        if self.credit_kb:
            return self.credit_kb * 1000
        if not line.bytes_per_s:
            return UNKNOWN_WAN_BYTES
        # Credit comes back by whole parts: one arrives while another's acknowledgement travels.
        return int(line.bytes_per_s * line.round_trip_s) + 2 * self.part_elements * BYTES_PER_ELEMENT
