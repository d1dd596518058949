"""compression=bsc: between parties only the largest elements travel, both ways, and what is left waits in residuals.
The codec is native, in libgeomx_bsc.so."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from geomx.api import CodecChoice, Compression, ConfigError, NativeCodec, Policy, option

LIBRARY = Path(__file__).parent / "libgeomx_bsc.so"
FLOATS = ("float32", "float64", "float16", "bfloat16")


@dataclass
class Bsc(Compression):
    ratio: float = option(0.01, "share of a tensor's elements that travels; at least one", above=0, at_most=1)
    threshold: float | None = option(None, "the seed's name for ratio", above=0, at_most=1)
    size_lower_bound: int = option(1000, "only tensors with more elements are sparse", at_least=0)
    momentum: float = option(
        0.0, "of momentum correction; for optimizers that have none of their own", at_least=0, below=1
    )
    value_bits: int = option(
        32, "of a value on the wire; what rounding loses stays in the residual", one_of=(32, 16, 8)
    )
    warmup_rounds: int = option(0, "rounds in which the ratio falls from warmup_ratio", at_least=0)
    variant: str = option("exact", "original: the published behaviour, for comparison", one_of=("exact", "original"))
    warmup_ratio: float = option(0.25, "share in the first of warmup_rounds", above=0, at_most=1)

    def __post_init__(self) -> None:
        """`threshold` becomes `ratio`, so that equal choices are equal texts."""
        if self.threshold is None or not _is_share(self.threshold):
            return
        if self.ratio not in (type(self).ratio, self.threshold):
            raise ConfigError(
                f"compression.threshold: {self.threshold} given, but compression.ratio={self.ratio}: they are two "
                "names of one option, give one"
            )
        self.ratio, self.threshold = self.threshold, None

    def policy(self) -> Policy:
        return LargeBetweenParties(self)

    def bytes_per_element(self, name: str, length: int, dtype: str) -> float:
        """A value and about two bytes of index for each element that travels."""
        if length <= self.size_lower_bound:
            return super().bytes_per_element(name, length, dtype)
        return self.ratio * (2 + self.value_bits / 8)

    def codecs(self) -> Sequence[NativeCodec]:
        return (NativeCodec(LIBRARY),)

    def choice(self) -> CodecChoice:
        """The native codec with these options; the original has none but the ratio."""
        if self.variant == "original":
            return CodecChoice("bsc-original", {"ratio": float(self.ratio)})
        return CodecChoice("bsc", {"ratio": float(self.ratio), "momentum": float(self.momentum),
                                   "value_bits": self.value_bits, "warmup_rounds": self.warmup_rounds,
                                   "warmup_ratio": float(self.warmup_ratio)})  # fmt: skip


class LargeBetweenParties(Policy):
    """Sparse between parties what has more elements than the bound; everything else as it is (Table 1)."""

    def __init__(self, options: Bsc) -> None:
        self._bound = options.size_lower_bound
        self._choice = options.choice()

    def choose(self, name: str, length: int, dtype: str, tier: str, direction: str) -> CodecChoice:
        if tier != "wan" or length <= self._bound:
            return CodecChoice()
        if dtype not in FLOATS:
            raise ConfigError(
                f"compression=bsc: {name} has {dtype}, allowed are {', '.join(FLOATS)}: what is left out of integers "
                "has no residual to wait in; use compression=none, or a float type"
            )
        return self._choice


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1
