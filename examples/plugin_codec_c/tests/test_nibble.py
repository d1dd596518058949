"""nibble keeps what every codec must keep: the suite brings the tests."""

from geomx_nibble import LIBRARY

from geomx import _core
from geomx.api import Promise
from geomx.testing.codec_suite import CodecSuite


class TestNibble(CodecSuite):
    # Half a step of a fourteenth, and a little for what the residual adds to the largest value.
    promise = Promise(error=1 / 13, dtypes=("float32",), not_finite="zero", rounds_to_drain=10)

    def make(self) -> _core.Codec:
        return _core.Codec("nibble", plugin=str(LIBRARY))
