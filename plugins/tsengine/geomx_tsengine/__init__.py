"""scheduler=tsengine: contributions merge pairwise on their way to the server, and members pass values on, as measured
links allow (TSEngine: Zhou et al., IEEE TNSM 18(4), 2021). Native, in libgeomx_tsengine.so."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from geomx.api import NativePlugin, Overlay, OverlayChoice, option

PARTS = 64  # of a tensor, at least: what the last one takes from hop to hop is little against all of them
LEAST_BYTES = 40_000  # of a part: questions and answers about it take a thousandth
LIBRARY = Path(__file__).parent / "libgeomx_tsengine.so"


@dataclass
class Tsengine(Overlay):
    inter: bool = option(False, "between parties; so it is too where neither inter nor intra is set")
    intra: bool = option(False, "inside parties, between workers")
    max_greed_rate: float = option(
        0.9,
        "how often the best known way is taken; else one at random, which may turn out better",
        at_least=0,
        at_most=1,
    )
    hold_ms: float = option(
        2000.0, "how long a contribution waits for the server's word before it goes straight to it", above=0,
        at_most=600_000,
    )  # fmt: skip
    bypass_ms: float = option(
        10_000.0, "without an answer for so long (later: for four times the usual), a contributor goes straight to the "
        "server", above=0, at_most=3_600_000,
    )  # fmt: skip
    seed: int = option(1, "of the ways taken at random", at_least=0)
    forbids: ClassVar[dict[str, str]] = {
        "sync=mixed": "there a round has one contributor, so there is nothing to merge; use sync=fsa, or scheduler=fifo"
    }

    def choice(self, tier: str) -> OverlayChoice | None:
        if not (self.intra if tier == "lan" else self.inter or not self.intra):
            return None
        names = ("max_greed_rate", "hold_ms", "bypass_ms", "seed")
        return OverlayChoice("tsengine", {name: getattr(self, name) for name in names})

    def part_length(self, length: int, bytes_per_element: float) -> int:
        least = int(LEAST_BYTES / max(bytes_per_element, 1e-6))
        return max(least, -(-length // PARTS))

    def libraries(self) -> Sequence[NativePlugin]:
        return (NativePlugin(LIBRARY),)
