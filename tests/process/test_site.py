"""The documentation's site is built, and what would be a warning (a broken link, an anchor that isn't there) fails."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason="mkdocs-material is missing: pip install .[docs]"
)
def test_the_site_is_built_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    built = {p.relative_to(tmp_path / "site").as_posix() for p in (tmp_path / "site").rglob("*.html")}
    assert built >= {p.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for p in ROOT.glob("docs/**/*.md")}
    assert "https://fonts." not in (tmp_path / "site" / "index.html").read_text()  # nothing comes from elsewhere
