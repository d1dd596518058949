"""scheduler=yourname: small tensors leave first, on all ways."""

from dataclasses import dataclass

from geomx.api import Line, Scheduler, option

MOST_RANK = 2**30
UNKNOWN_BYTES = 1_000_000


@dataclass
class Yourname(Scheduler):
    part_elements: int = option(50_000, "elements of a part at most", at_least=1)
    credit_parts: int = option(8, "parts on their way beyond what the line itself holds", at_least=1)

    def rank(self, name: str, order: int, length: int, tier: str) -> int:
        """Larger ones leave first; tensors of one size leave in the order in which they came."""
        return -min(length, MOST_RANK)

    def credit_bytes(self, tier: str, line: Line) -> int:
        on_the_line = int(line.bytes_per_s * line.round_trip_s) or UNKNOWN_BYTES
        return on_the_line + self.credit_parts * self.part_elements * 4
