"""yourname keeps what every codec and every policy must keep: the suites bring the tests."""

from geomx_yourname import LIBRARY, Yourname

from geomx import _core
from geomx.testing.codec_suite import CodecSuite
from geomx.testing.policy_suite import PolicySuite


class TestCodec(CodecSuite):
    promise = Yourname.promises["yourname"]

    def make(self) -> _core.Codec:
        return _core.Codec("yourname", plugin=str(LIBRARY))


class TestPolicy(PolicySuite):
    choice = "compression=yourname"


def test_small_tensors_travel_as_they_are():
    policy = Yourname(min_length=100).policy()
    assert policy.choose("w", 99, "float32", "wan", "up").name == "identity"
    assert policy.choose("w", 100, "float32", "wan", "up").name == "yourname"
