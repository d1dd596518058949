"""compression=yourname: between parties gradients travel in 8 bits a value. Options and policy; the codec is in
codec.py, which is imported late."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from geomx.api import CodecChoice, Compression, Policy, Promise, PythonCodec, option

DTYPES = ("float32", "float64")


@dataclass
class Yourname(Compression):
    min_length: int = option(256, "smaller tensors travel as they are", at_least=0)
    promises: ClassVar[dict[str, Promise]] = {
        "yourname": Promise(error=1 / 254, not_finite="zero", rounds_to_drain=1, dtypes=DTYPES)
    }

    def policy(self) -> Policy:
        return LargeGradients(self.min_length)

    def bytes_per_element(self, name: str, length: int, dtype: str) -> float:
        takes = dtype in DTYPES and length >= self.min_length
        return 1 if takes else super().bytes_per_element(name, length, dtype)

    def codecs(self) -> Sequence[PythonCodec]:
        from geomx_yourname.codec import make

        return (PythonCodec("yourname", make),)


class LargeGradients(Policy):
    """Up between parties: what comes down may be weights, which rounding would spoil for good."""

    def __init__(self, min_length: int) -> None:
        self._min_length = min_length

    def choose(self, name: str, length: int, dtype: str, tier: str, direction: str) -> CodecChoice:
        takes = tier == "wan" and direction == "up" and dtype in DTYPES and length >= self._min_length
        return CodecChoice("yourname") if takes else CodecChoice()
