"""transport=dgt: between parties the parts of a gradient that contribute most travel reliably, and the rest on lossy
channels of falling priority. What is lost goes into the next round. The policy is native, in libgeomx_dgt.so."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from geomx.api import NativePlugin, Transport, TransportChoice, option

LIBRARY = Path(__file__).parent / "libgeomx_dgt.so"


@dataclass
class Dgt(Transport):
    mode: str = option(
        "udp",
        "udp: lossy channels are datagrams; tcp: they are streams of their own, and what hasn't left in time is "
        "dropped by its sender; tcp4bit: nothing is dropped, the rest travels in 4 bits",
        one_of=("udp", "tcp", "tcp4bit"),
    )
    k: float = option(0.8, "share of a tensor's parts that travels reliably", above=0, at_most=1)
    adaptive_k: bool = option(False, "k falls with the loss that workers report: max(k_min, k * loss / first loss)")
    k_min: float = option(0.2, "what an adaptive k doesn't fall below", above=0, at_most=1)
    channels: int = option(3, "lossy channels, of falling priority", at_least=1, at_most=8)
    block_bytes: int = option(
        1408, "bytes of a part at most, about: parts are ranked, lost and given back as a whole", at_least=4
    )
    alpha: float = option(0.3, "weight of the past in a part's contribution", at_least=0, below=1)
    deadline_ms: float = option(
        10.0, "how long a round waits for droppable parts after their sender's end mark", at_least=0, at_most=60_000
    )
    wait_ms: float = option(
        1000.0, "how long droppable parts wait to leave, once nothing reliable is before them", above=0, at_most=600_000
    )
    ranking: str = option("contribution", "random: for comparison", one_of=("contribution", "random"))
    withhold: bool = option(False, "for comparison: what might be dropped is never sent")
    local: bool = option(True, "shared memory between nodes of one host; false: TCP for them too", scope="node")

    @property
    def lossy(self) -> bool:
        return self.mode != "tcp4bit"

    @property
    def datagrams(self) -> bool:
        return self.mode == "udp"

    @property
    def unmergeable(self) -> str:
        if self.mode != "tcp4bit":
            return ""
        return "parts in 4 bits can't merge on their way; use transport.mode=udp, or scheduler=fifo or p3"

    def choice(self) -> TransportChoice:
        names = (
            "mode",
            "k",
            "adaptive_k",
            "k_min",
            "channels",
            "alpha",
            "deadline_ms",
            "wait_ms",
            "ranking",
            "withhold",
        )
        return TransportChoice("dgt", {name: getattr(self, name) for name in names})

    def libraries(self) -> Sequence[NativePlugin]:
        return (NativePlugin(LIBRARY),)
