"""compression=mpq: small tensors in half precision everywhere, large ones as they are inside a party and sparse between
parties. A policy over the codecs of geomx-bsc and geomx-fp16."""

from collections.abc import Sequence
from dataclasses import dataclass

from geomx_bsc import Bsc
from geomx_fp16 import Fp16

from geomx.api import CodecChoice, NativeCodec, Policy, option


@dataclass
class Mpq(Bsc):
    """bsc's options for what is large, fp16's for what is small."""

    format: str = option("float16", "of small tensors on the wire", one_of=("float16", "bfloat16"))
    overflow: str = option("saturate", "a finite value beyond the format's range", one_of=("saturate", "inf"))

    def policy(self) -> Policy:
        return SizeDecides(self)

    def bytes_per_element(self, name: str, length: int, dtype: str) -> float:
        of = super() if length > self.size_lower_bound else self.halves()
        return of.bytes_per_element(name, length, dtype)

    def codecs(self) -> Sequence[NativeCodec]:
        return (*super().codecs(), *self.halves().codecs())

    def halves(self) -> Fp16:
        return Fp16(format=self.format, overflow=self.overflow)


class SizeDecides(Policy):
    def __init__(self, options: Mpq) -> None:
        self._bound = options.size_lower_bound
        self._large, self._small = Bsc.policy(options), options.halves().policy()

    def choose(self, name: str, length: int, dtype: str, tier: str, direction: str) -> CodecChoice:
        policy = self._large if length > self._bound else self._small
        return policy.choose(name, length, dtype, tier, direction)
