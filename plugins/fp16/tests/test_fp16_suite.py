"""fp16 and bf16 keep what every codec must keep."""

import pytest

pytest.importorskip("geomx_fp16", reason="the plugin isn't installed: pip install plugins/fp16")

from geomx_fp16 import LIBRARY, Fp16

from geomx import _core
from geomx.api import Promise
from geomx.testing.codec_suite import CodecSuite


class TestFloat16(CodecSuite):
    promise = Promise(error=1 / 2048, merge_error=1 / 2048, dtypes=("float32", "float64", "float16"))

    def make(self) -> _core.Codec:
        return _core.Codec("fp16", plugin=str(LIBRARY))


class TestBfloat16(CodecSuite):
    promise = Fp16.promises["bf16"]

    def make(self) -> _core.Codec:
        return _core.Codec("bf16", plugin=str(LIBRARY))
