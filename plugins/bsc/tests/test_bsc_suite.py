"""bsc keeps what every codec must keep."""

import pytest

pytest.importorskip("geomx_bsc", reason="the plugin isn't installed: pip install plugins/bsc")

from geomx_bsc import LIBRARY

from geomx import _core
from geomx.testing.codec_suite import CodecSuite


class Sparse(CodecSuite):
    sparse = True
    dtypes = ("float32", "float64", "float16")
    not_finite = "zero"
    rounds_to_drain = 25
    ratio, bits = 0.05, 32

    def make(self) -> _core.Codec:
        return _core.Codec("bsc", {"ratio": self.ratio, "momentum": 0.0, "value_bits": self.bits}, str(LIBRARY))


class TestSingles(Sparse):
    error = 1 / 2048  # of float16 tensors; float32 arrives exactly, as the C++ tests show


class TestHalves(Sparse):
    error, bits = 1 / 2048, 16


class TestBytes(Sparse):
    error, bits = 1 / 220, 8
    rounds_to_drain = 60


class TestEverything(Sparse):
    error, ratio, sparse = 1 / 2048, 1.0, False
