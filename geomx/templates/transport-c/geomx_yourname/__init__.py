"""transport=yourname: the parts of a tensor that weigh most are reliable, the rest may be lost and comes with the next
round. Options; the policy is src/yourname.c."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from geomx.api import NativePlugin, Transport, TransportChoice, option

LIBRARY = Path(__file__).parent / "libgeomx_yourname.so"


@dataclass
class Yourname(Transport):
    share: float = option(0.75, "of a tensor's parts that is reliable", above=0, at_most=1)
    deadline_ms: float = option(
        10.0, "how long a round waits for the rest, once its sender is done", at_least=0, at_most=60_000
    )
    block_bytes: int = option(1200, "bytes of a part, about: it is lost as a whole", at_least=4, at_most=1400)
    lossy: ClassVar[bool] = True

    def choice(self) -> TransportChoice:
        return TransportChoice("yourname", {"share": self.share, "deadline_ms": self.deadline_ms})

    def libraries(self) -> Sequence[NativePlugin]:
        return (NativePlugin(LIBRARY),)
