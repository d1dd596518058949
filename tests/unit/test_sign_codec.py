"""A codec whose format has no 0: one bit a value, with a scale for each tensor. It can keep what every codec must."""

from typing import Any

import numpy as np
import pytest

from geomx import _core
from geomx.api import Codec, ConfigError, PartInfo, Promise
from geomx.testing.codec_suite import CodecSuite


class Slot:
    def __init__(self, length: int) -> None:
        self.kept, self.scale = np.zeros(length, np.float32), np.float32(0)


class Sign(Codec):
    wire_id, lossy, scope, carries, dtypes = "SIGN", True, "tensor", ("gradient",), ("float32", "float64")

    def open_slot(self, tensor: PartInfo) -> Slot:
        return Slot(tensor.tensor_length)

    def prepare(self, slot: Slot, tensor: PartInfo, values: Any) -> None:
        slot.kept += np.where(np.isfinite(values), values, 0).astype(np.float32)
        slot.scale = np.float32(np.abs(slot.kept).mean() if slot.kept.size else 0)

    def encode(self, slot: Slot, part: PartInfo, values: Any) -> bytes:
        kept = slot.kept[part.offset : part.offset + part.length]
        positive = kept >= 0
        kept -= np.where(positive, slot.scale, -slot.scale)
        return slot.scale.tobytes() + np.packbits(positive).tobytes()

    def decode(self, part: PartInfo, data: memoryview, out: Any) -> None:
        if len(data) != 4 + (part.length + 7) // 8:
            raise ValueError("its size is not that of a part of this length")
        (scale,) = np.frombuffer(data, np.float32, 1)
        if not 0 <= scale < np.inf:
            raise ValueError(f"expected a scale from 0, got {scale}")
        out[:] = np.where(np.unpackbits(np.frombuffer(data, np.uint8, -1, 4), count=part.length), scale, -scale)

    def give_back(self, slot: Slot, part: PartInfo, data: memoryview) -> None:
        lost = np.empty(part.length, np.float32)
        self.decode(part, data, lost)
        slot.kept[part.offset : part.offset + part.length] += lost

    def save_slot(self, slot: Slot) -> bytes:
        return slot.kept.tobytes()

    def load_slot(self, slot: Slot, data: bytes) -> None:
        slot.kept[:] = np.frombuffer(data, np.float32)


class TestSign(CodecSuite):
    promise = Promise(error=1.0, not_finite="finite", rounds_to_drain=40)

    def make(self) -> _core.Codec:
        return _core.Codec("sign", make=lambda params: Sign())


class TestZeroIsMoreThanItCanPromise(TestSign):
    promise = Promise(error=1.0, not_finite="zero", rounds_to_drain=40)

    def test_what_is_not_finite_follows_the_rule_and_harms_nothing_else(self) -> None:
        with pytest.raises(AssertionError, match="0 expected of NaN"):
            super().test_what_is_not_finite_follows_the_rule_and_harms_nothing_else()


def test_another_word_is_refused():
    with pytest.raises(ConfigError, match=r"Promise.not_finite: 'nil' given, allowed is one of kept, zero, finite"):
        Promise(not_finite="nil")
