"""compression=yourname: large tensors in half precision between parties, everything else as it is. A policy over the
codecs of geomx-fp16."""

from collections.abc import Sequence
from dataclasses import dataclass

from geomx_fp16 import Fp16

from geomx.api import CodecChoice, Compression, NativeCodec, Policy, option

HALVES = Fp16(lan=False)


@dataclass
class Yourname(Compression):
    min_length: int = option(10_000, "tensors with fewer elements travel as they are", at_least=0)

    def policy(self) -> Policy:
        return LargeInHalves(self.min_length)

    def bytes_per_element(self, name: str, length: int, dtype: str) -> float:
        if length < self.min_length:
            return super().bytes_per_element(name, length, dtype)
        return HALVES.bytes_per_element(name, length, dtype)

    def codecs(self) -> Sequence[NativeCodec]:
        return HALVES.codecs()


class LargeInHalves(Policy):
    """Pure: every node asks it for itself, and all must come to the same."""

    def __init__(self, min_length: int) -> None:
        self._min_length = min_length
        self._large = HALVES.policy()

    def choose(self, name: str, length: int, dtype: str, tier: str, direction: str) -> CodecChoice:
        if length < self._min_length:
            return CodecChoice()
        return self._large.choose(name, length, dtype, tier, direction)
