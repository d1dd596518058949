"""yourname keeps what every transport must keep: the suite brings the tests. What this one asks for is tested below."""

from geomx_yourname import LIBRARY, Yourname

from geomx.testing.transport_suite import TransportSuite


class TestTransport(TransportSuite):
    choice = "transport=yourname"


def test_its_policy_is_told_its_options():
    assert LIBRARY.is_file()
    assert Yourname(share=0.5).choice().params == {"share": 0.5, "deadline_ms": 10.0}
