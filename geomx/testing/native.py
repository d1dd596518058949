"""What transports and overlays have in common: libraries that exist, a choice that is the same on every node."""

from typing import Any

from geomx.api import OverlayChoice, TransportChoice
from geomx.testing.plugin_suite import check_params


def check_libraries(options: Any) -> None:
    for library in options.libraries():
        assert library.path.is_file(), (
            f"libraries() names {library.path}, expected a shared library there: is it built?"
        )


def check_choice(choose: Any, kind: type[OverlayChoice | TransportChoice], of: str) -> None:
    """`choose()` gives None or a choice with parameters that travel, and the same each time."""
    found = [choose() for _ in range(2)]
    assert found[0] == found[1], f"{of}: first {found[0]}, when asked again {found[1]}; nodes must agree"
    assert found[0] is None or isinstance(found[0], kind), f"{of}: expected None or a {kind.__name__}, got {found[0]!r}"
    if found[0] is not None:
        check_params(found[0].params, of)
