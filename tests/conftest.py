"""Makes the checkout importable, and stands in for the C++ core where it isn't built: unit tests need its errors."""

import atexit
import os
import shutil
import sys
import tempfile
import types
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
for path in (ROOT, ROOT / "tests"):
    if str(path) not in sys.path:
        sys.path.insert(0, str(path))


def _stand_in() -> types.ModuleType:
    made = types.ModuleType("geomx._core")

    class Error(Exception):
        pass

    class Refused(Error):
        pass

    class Timeout(Error):
        pass

    for cls in (Error, Refused, Timeout):
        cls.__module__ = "geomx._core"
        setattr(made, cls.__name__, cls)
    made.Node = made.Ticket = made.Domain = object  # type: ignore[attr-defined]
    return made


def _offer_entry_points() -> None:
    """Choices are found by package metadata, which a checkout that isn't installed lacks: made from pyproject.toml."""
    if list(entry_points(group="geomx.plugins")):
        return
    text = (ROOT / "pyproject.toml").read_text()
    table = text.partition('[project.entry-points."geomx.plugins"]')[2].partition("\n[")[0]
    where = Path(tempfile.mkdtemp(prefix="geomx-metadata-"))
    atexit.register(shutil.rmtree, where, ignore_errors=True)
    info = where / "geomx-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: geomx\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[geomx.plugins]\n" + table.replace('"', ""))
    sys.path.append(str(where))
    own = [str(ROOT), str(where), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(own)  # for processes that tests start


_offer_entry_points()
try:
    import geomx._core  # noqa: F401
except ImportError:
    sys.modules["geomx._core"] = _stand_in()


@pytest.fixture(autouse=True)
def _stores_end_with_their_test() -> Iterator[None]:
    """Stores that a test leaves open must not leave at the interpreter's end: their cluster is gone by then."""
    yield
    if "geomx.exits" in sys.modules:
        sys.modules["geomx.exits"]._open.clear()
