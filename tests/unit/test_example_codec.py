"""The example codec keeps its promises: what it loses comes back, and wrong bytes are refused."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from geomx import _core
from geomx.api import PartInfo, Promise
from geomx.testing.codec_suite import CodecSuite

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin_codec_python"


@pytest.fixture
def codec(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("geomx_int8.codec").make({})
    for name in [m for m in sys.modules if m.startswith("geomx_int8")]:
        del sys.modules[name]


class TestWhatEveryCodecKeeps(CodecSuite):
    promise = Promise(error=1 / 254, not_finite="zero", rounds_to_drain=1)

    @pytest.fixture(autouse=True)
    def _find(self, codec):
        self.kind = type(codec)

    def make(self):
        return _core.Codec("int8", make=lambda params: self.kind())


def part(length, offset=0, whole=None):
    return PartInfo("w", 0, 1, 1, offset, length, whole or length, "float32", "wan", "up")


@pytest.mark.parametrize("length", [0, 1, 2, 67, 1000])
def test_what_is_sent_and_kept_is_what_was_given(codec, length):
    rng, info = np.random.default_rng(1), part(length)
    slot, sent, given = codec.open_slot(info), np.zeros(length, np.float64), np.zeros(length, np.float64)
    for _ in range(20):
        values = rng.standard_normal(length).astype(np.float32)
        data = codec.encode(slot, info, values)
        assert len(data) == 4 + length
        out = np.empty(length, np.float32)
        codec.decode(info, memoryview(data), out)
        sent += out
        given += values
    np.testing.assert_allclose(sent + slot, given, atol=1e-4)


def test_parts_of_a_tensor_have_residuals_of_their_own(codec):
    slot = codec.open_slot(part(10))
    codec.encode(slot, part(4, 6, 10), np.array([1, 0.3, 0.1, 0.77], np.float32))
    assert not slot[:6].any()
    assert slot[6:].any()


def test_what_was_lost_goes_back(codec):
    info = part(3)
    slot, values = codec.open_slot(info), np.array([1, 2, 3], np.float32)
    codec.give_back(slot, info, memoryview(codec.encode(slot, info, values)))
    np.testing.assert_allclose(slot, values, atol=1e-6)


def test_what_is_not_finite_does_not_stay(codec):
    info = part(3)
    slot = codec.open_slot(info)
    codec.encode(slot, info, np.array([1, np.nan, np.inf], np.float32))
    assert np.isfinite(slot).all()


@pytest.mark.parametrize("data", [b"", b"\0" * 6, b"\0" * 8, b"\0\0\xc0\x7f" + b"\0" * 3, b"\0\0\x80\xbf" + b"\0" * 3])
def test_wrong_bytes_are_refused(codec, data):
    with pytest.raises(ValueError, match="int8: expected"):
        codec.decode(part(3), memoryview(data), np.empty(3, np.float32))


def test_state_is_saved_and_loaded(codec):
    info = part(5)
    slot, other = codec.open_slot(info), codec.open_slot(info)
    codec.encode(slot, info, np.linspace(0, 1, 5, dtype=np.float32))
    codec.load_slot(other, codec.save_slot(slot))
    np.testing.assert_array_equal(slot, other)
