"""yourname keeps what every overlay must keep: the suite brings the tests. What this one asks for, is tested below."""

from geomx_yourname import LIBRARY, Yourname

from geomx.testing.overlay_suite import OverlaySuite


class TestOverlay(OverlaySuite):
    choice = "scheduler=yourname"


def test_it_serves_the_tiers_that_it_is_told_to():
    assert LIBRARY.is_file()
    assert Yourname().choice("lan") is None
    assert Yourname(intra=True, hold_ms=1.0).choice("lan").params == {"hold_ms": 1.0, "bypass_ms": 5000.0}
