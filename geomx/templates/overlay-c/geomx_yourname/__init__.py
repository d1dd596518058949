"""scheduler=yourname: members merge and relay in pairs. Options; the overlay is src/yourname.c. Goes with a scheduler:
scheduler=fifo+yourname."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from geomx.api import NativePlugin, Overlay, OverlayChoice, option

LIBRARY = Path(__file__).parent / "libgeomx_yourname.so"


@dataclass
class Yourname(Overlay):
    inter: bool = option(True, "between parties")
    intra: bool = option(False, "inside parties, between workers")
    hold_ms: float = option(200.0, "how long the first of a pair waits for the second", above=0, at_most=600_000)
    bypass_ms: float = option(
        5000.0, "without an answer for so long, a contributor goes straight to the server", above=0, at_most=3_600_000
    )
    forbids: ClassVar[dict[str, str]] = {
        "sync=mixed": "there a round has one contributor, so there is nothing to merge; use sync=fsa, or scheduler=fifo"
    }

    def choice(self, tier: str) -> OverlayChoice | None:
        if not (self.intra if tier == "lan" else self.inter):
            return None
        return OverlayChoice("yourname", {"hold_ms": self.hold_ms, "bypass_ms": self.bypass_ms})

    def libraries(self) -> Sequence[NativePlugin]:
        return (NativePlugin(LIBRARY),)
