"""compression=yourname: between parties gradients travel in 8 bits a value. Options and policy; the codec is
src/yourname.cc."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from geomx.api import CodecChoice, Compression, NativeCodec, Policy, Promise, option

LIBRARY = Path(__file__).parent / "libgeomx_yourname.so"


@dataclass
class Yourname(Compression):
    min_length: int = option(256, "smaller tensors travel as they are", at_least=0)
    promises: ClassVar[dict[str, Promise]] = {
        "yourname": Promise(error=1 / 254, not_finite="zero", rounds_to_drain=1, dtypes=("float32",))
    }

    def policy(self) -> Policy:
        return LargeGradients(self.min_length)

    def bytes_per_element(self, name: str, length: int, dtype: str) -> float:
        takes = dtype == "float32" and length >= self.min_length
        return 1 if takes else super().bytes_per_element(name, length, dtype)

    def codecs(self) -> Sequence[NativeCodec]:
        return (NativeCodec(LIBRARY),)


class LargeGradients(Policy):
    """Up between parties: what comes down may be weights, which rounding would spoil for good."""

    def __init__(self, min_length: int) -> None:
        self._min_length = min_length

    def choose(self, name: str, length: int, dtype: str, tier: str, direction: str) -> CodecChoice:
        takes = tier == "wan" and direction == "up" and dtype == "float32" and length >= self._min_length
        return CodecChoice("yourname") if takes else CodecChoice()
