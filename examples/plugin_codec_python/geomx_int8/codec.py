"""Linear quantisation: one float32 scale, then a signed byte a value. What rounding loses is added to the next round's
values (error feedback)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.api import Codec, PartInfo

HEADER = 4  # bytes of the scale


class Int8Codec(Codec):
    wire_id = "INT8"
    lossy = True
    dtypes = ("float32", "float64")

    def open_slot(self, tensor: PartInfo) -> NDArray[Any]:
        """The residual of the whole tensor."""
        return np.zeros(tensor.tensor_length, np.float32)

    def encode(self, slot: Any, part: PartInfo, values: NDArray[Any]) -> bytes:
        residual = slot[part.offset : part.offset + part.length]
        wanted = np.where(np.isfinite(values), values, 0).astype(np.float32) + residual
        scale = np.float32(np.abs(wanted).max(initial=0) / 127)
        steps = np.rint(wanted / scale).astype(np.int8) if scale > 0 else np.zeros(part.length, np.int8)
        residual[:] = wanted - steps * scale
        return scale.tobytes() + steps.tobytes()

    def decode(self, part: PartInfo, data: memoryview, out: NDArray[Any]) -> None:
        if len(data) != HEADER + part.length:
            raise ValueError(f"int8: expected {HEADER + part.length} bytes for {part.length} values, got {len(data)}")
        (scale,) = np.frombuffer(data, np.float32, 1)
        if not np.isfinite(scale) or scale < 0:
            raise ValueError(f"int8: expected a scale from 0, got {scale}")
        np.multiply(np.frombuffer(data, np.int8, part.length, HEADER), scale, out=out, casting="unsafe")

    def give_back(self, slot: Any, part: PartInfo, data: memoryview) -> None:
        lost = np.empty(part.length, np.float32)
        self.decode(part, data, lost)
        slot[part.offset : part.offset + part.length] += lost

    def save_slot(self, slot: Any) -> bytes:
        saved: bytes = slot.tobytes()
        return saved

    def load_slot(self, slot: Any, data: bytes) -> None:
        slot[:] = np.frombuffer(data, np.float32)


def make(params: dict[str, Any]) -> Int8Codec:
    return Int8Codec()
