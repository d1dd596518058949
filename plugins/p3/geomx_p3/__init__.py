"""scheduler=p3: tensors travel in short parts, and first those that the next forward pass needs first (Jayarajan et al.
2019). On all ways: inside parties and between them, gradients up and values down."""

from dataclasses import dataclass

from geomx.api import BYTES_PER_ELEMENT, Line, Scheduler, option

LEAST_WAN_BYTES = 250_000  # where the line isn't known; what is measured comes on top


@dataclass
class P3(Scheduler):
    part_elements: int = option(
        40_000,
        "elements of a part at most; fewer where network= says that 16 parts of them don't fit into the "
        "bandwidth-delay product",
        at_least=1,
    )
    credit_kb: int = option(
        0,
        "kilobytes on their way to a peer between parties, which nothing overtakes; 0: what network= needs to keep its "
        "links busy without overflowing their queues, what is measured where that isn't known. Less than the "
        "bandwidth-delay product leaves the link idle, more makes what is urgent wait and packets be dropped",
        at_least=0,
    )
    lan_credit_kb: int = option(1000, "the same inside a party", at_least=1)

    def part_length(self, line: Line, bytes_per_element: float) -> int:
        return line.part_elements(self.part_elements, bytes_per_element)

    def credit_bytes(self, tier: str, line: Line) -> int:
        if tier == "lan":
            return self.lan_credit_kb * 1000
        parts = line.part_elements(self.part_elements, BYTES_PER_ELEMENT)
        return self.credit_kb * 1000 or line.credit_bytes(parts) or LEAST_WAN_BYTES

    def credit_grows(self, tier: str, line: Line) -> bool:
        return tier == "wan" and not self.credit_kb and not line.bytes_per_s
