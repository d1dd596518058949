"""scheduler=p3: tensors travel in short parts, and first those that the next forward pass needs first (Jayarajan et al.
2019). On all ways: inside parties and between them, gradients up and values down."""

from dataclasses import dataclass

from geomx.api import Line, Scheduler, option

BYTES_PER_ELEMENT = 4  # of a part that is not compressed
LEAST_WAN_BYTES = 250_000  # where the line isn't known; what is measured comes on top
PARTS_ON_THE_LINE = 16  # so many fit into the bandwidth-delay product
SPARE_PARTS = 8  # in credit, however many share a link: it comes back by whole parts, behind the other direction's
HOST_S = 0.001  # that a host takes to acknowledge, which on a short line is most of the round trip
LEAST_ELEMENTS = 2_000


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
        part_bytes = line.bytes_per_s * line.round_trip_s / PARTS_ON_THE_LINE
        if not part_bytes:
            return self.part_elements
        if line.share_bytes:
            part_bytes = min(part_bytes, line.share_bytes / SPARE_PARTS)
        return min(self.part_elements, max(LEAST_ELEMENTS, int(part_bytes / max(bytes_per_element, 1e-6))))

    def credit_bytes(self, tier: str, line: Line) -> int:
        if tier == "lan":
            return self.lan_credit_kb * 1000
        if self.credit_kb:
            return self.credit_kb * 1000
        if not line.bytes_per_s:
            return LEAST_WAN_BYTES
        part_bytes = self.part_length(line, BYTES_PER_ELEMENT) * BYTES_PER_ELEMENT
        spare = SPARE_PARTS * part_bytes
        wanted = int(line.bytes_per_s * line.round_trip_s) + spare
        least = max(spare, int(line.bytes_per_s * HOST_S))
        return min(wanted, max(int(line.share_bytes), least)) if line.share_bytes else wanted

    def credit_grows(self, tier: str, line: Line) -> bool:
        return tier == "wan" and not self.credit_kb and not line.bytes_per_s
