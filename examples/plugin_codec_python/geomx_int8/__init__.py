"""compression=int8: gradients travel as 8-bit integers. Options and policy; the codec's module is imported late."""

from collections.abc import Sequence
from dataclasses import dataclass

from geomx.api import CodecChoice, Compression, Policy, PythonCodec, option


@dataclass
class Int8(Compression):
    min_length: int = option(256, "smaller tensors travel as they are", at_least=0)

    def policy(self) -> Policy:
        return LargeGradients(self.min_length)

    def codecs(self) -> Sequence[PythonCodec]:
        from geomx_int8.codec import make

        return (PythonCodec("int8", make),)


class LargeGradients(Policy):
    """Up only: what comes down may be weights, which rounding would spoil for good."""

    def __init__(self, min_length: int) -> None:
        self._min_length = min_length

    def choose(self, name: str, length: int, dtype: str, tier: str, direction: str) -> CodecChoice:
        takes = direction == "up" and dtype in ("float32", "float64") and length >= self._min_length
        return CodecChoice("int8") if takes else CodecChoice()
