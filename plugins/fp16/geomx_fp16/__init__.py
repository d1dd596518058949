"""compression=fp16: values travel in 16 bits. The codecs "fp16" and "bf16" are native, in libgeomx_fp16.so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from geomx.api import CodecChoice, Compression, NativeCodec, Policy, Promise, option

LIBRARY = Path(__file__).parent / "libgeomx_fp16.so"
CODECS = {"float16": "fp16", "bfloat16": "bf16"}
WIDE = ("float32", "float64")


@dataclass
class Fp16(Compression):
    format: str = option("float16", "of the values on the wire", one_of=tuple(CODECS))
    overflow: str = option("saturate", "a finite value beyond the format's range", one_of=("saturate", "inf"))
    lan: bool = option(True, "inside a party")
    wan: bool = option(True, "between parties")
    promises: ClassVar[Mapping[str, Promise]] = {
        "fp16": Promise(error=1 / 2048, merge_error=1 / 2048),
        "bf16": Promise(error=1 / 256, merge_error=1 / 256),
    }

    def policy(self) -> Policy:
        return HalfWidth(self)

    def bytes_per_element(self, name: str, length: int, dtype: str) -> float:
        return 2 if self.wan and dtype in WIDE else super().bytes_per_element(name, length, dtype)

    def codecs(self) -> Sequence[NativeCodec]:
        return (NativeCodec(LIBRARY),)


class HalfWidth(Policy):
    """Every tensor that is wider; integers and halves travel as they are."""

    def __init__(self, options: Fp16) -> None:
        self._tiers = {"lan": options.lan, "wan": options.wan}
        self._choice = CodecChoice(CODECS[options.format], {"overflow": options.overflow})

    def choose(self, name: str, length: int, dtype: str, tier: str, direction: str) -> CodecChoice:
        return self._choice if dtype in WIDE and self._tiers[tier] else CodecChoice()
