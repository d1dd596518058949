"""compression=nibble: gradients travel in four bits a value. Options and policy; the codec is src/nibble.c."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from geomx.api import CodecChoice, Compression, NativeCodec, Policy, option

LIBRARY = Path(__file__).parent / "libgeomx_nibble.so"


@dataclass
class Nibble(Compression):
    min_length: int = option(256, "smaller tensors travel as they are", at_least=0)

    def policy(self) -> Policy:
        return LargeBetweenParties(self.min_length)

    def codecs(self) -> Sequence[NativeCodec]:
        return (NativeCodec(LIBRARY),)


class LargeBetweenParties(Policy):
    def __init__(self, min_length: int) -> None:
        self._min_length = min_length

    def choose(self, name: str, length: int, dtype: str, tier: str, direction: str) -> CodecChoice:
        takes = tier == "wan" and dtype == "float32" and length >= self._min_length
        return CodecChoice("nibble") if takes else CodecChoice()
