"""One float32 scale, then a signed byte a value. What rounding loses is added to the next round's values."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.api import Codec, PartInfo

SCALE_BYTES = 4
MOST = 127


class YournameCodec(Codec):
    wire_id = "YOUR"
    lossy = True
    carries = ("gradient",)
    dtypes = ("float32", "float64")

    def open_slot(self, tensor: PartInfo) -> NDArray[np.float32]:
        """The residual of the whole tensor."""
        return np.zeros(tensor.tensor_length, np.float32)

    def encode(self, slot: NDArray[np.float32], part: PartInfo, values: NDArray[Any]) -> bytes:
        residual = slot[part.offset : part.offset + part.length]
        wanted = np.where(np.isfinite(values), values, 0).astype(np.float32) + residual
        scale = np.float32(np.abs(wanted).max(initial=0) / MOST)
        steps = np.rint(wanted / scale).astype(np.int8) if scale > 0 else np.zeros(part.length, np.int8)
        residual[:] = wanted - steps * scale
        return scale.tobytes() + steps.tobytes()

    def decode(self, part: PartInfo, data: memoryview, out: NDArray[Any]) -> None:
        """`data` comes from the network: ValueError for what encode can't have made."""
        if len(data) != SCALE_BYTES + part.length:
            raise ValueError(f"expected {SCALE_BYTES + part.length} bytes for {part.length} values, got {len(data)}")
        (scale,) = np.frombuffer(data, np.float32, 1)
        if not 0 <= scale <= np.finfo(np.float32).max / MOST:
            raise ValueError(f"expected a scale from 0, got {scale}")
        np.multiply(np.frombuffer(data, np.int8, part.length, SCALE_BYTES), scale, out=out, casting="unsafe")

    def give_back(self, slot: NDArray[np.float32], part: PartInfo, data: memoryview) -> None:
        """It didn't arrive: it is in the residual again."""
        lost = np.empty(part.length, np.float32)
        self.decode(part, data, lost)
        slot[part.offset : part.offset + part.length] += lost

    def save_slot(self, slot: NDArray[np.float32]) -> bytes:
        return slot.tobytes()

    def load_slot(self, slot: NDArray[np.float32], data: bytes) -> None:
        slot[:] = np.frombuffer(data, np.float32)


def make(params: dict[str, Any]) -> YournameCodec:
    return YournameCodec()
