"""bsc keeps what every codec must keep."""

import pytest

pytest.importorskip("geomx_bsc", reason="the plugin isn't installed: pip install plugins/bsc")

from geomx_bsc import LIBRARY

from geomx import _core
from geomx.api import Promise
from geomx.testing.codec_suite import CodecSuite


class Bsc(CodecSuite):
    ratio, bits = 0.05, 32

    def make(self) -> _core.Codec:
        return _core.Codec("bsc", {"ratio": self.ratio, "momentum": 0.0, "value_bits": self.bits}, str(LIBRARY))


def promised(error: float, sparse: bool = True, rounds_to_drain: int = 25) -> Promise:
    floats = ("float32", "float64", "float16")
    return Promise(error=error, sparse=sparse, dtypes=floats, not_finite="zero", rounds_to_drain=rounds_to_drain)


class TestSingles(Bsc):
    promise = promised(1 / 2048)  # of float16 tensors; float32 arrives exactly, as the C++ tests show


class TestHalves(Bsc):
    promise, bits = promised(1 / 2048), 16


class TestBytes(Bsc):
    promise, bits = promised(1 / 220, rounds_to_drain=60), 8


class TestEverything(Bsc):
    promise, ratio = promised(1 / 2048, sparse=False), 1.0
