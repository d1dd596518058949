"""Plugins by entry points: found without being imported, and every way to be broken told in a sentence."""

import subprocess
import sys

import pytest

from geomx import plugins
from geomx.errors import ConfigError


@pytest.fixture
def install(tmp_path, monkeypatch):
    """install(distribution, entry points, code): as pip would leave it, in a folder on sys.path."""

    def put(distribution, entries, code=""):
        name = distribution.replace("-", "_")
        info = tmp_path / f"{name}-0.3.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.3\n")
        lines = [f"{key} = {value}" for key, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[geomx.plugins]", *lines, ""]))
        (tmp_path / f"{name}.py").write_text(code)

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    plugins.offers.cache_clear()
    yield put
    plugins.offers.cache_clear()


GOOD = """
from dataclasses import dataclass
from geomx.api import option

@dataclass
class Toy:
    k: int = option(1, "x", at_least=1)
"""


def listing():
    return subprocess.run([sys.executable, "-m", "geomx.plugins"], capture_output=True, text=True, check=False)


def test_what_is_built_in_is_listed():
    found = listing()
    assert found.returncode == 0
    assert "topology     hips           geomx 0.1.0" in found.stdout


def test_a_plugin_is_found_and_taken(install):
    install("geomx-toy", {"compression.toy": "geomx_toy:Toy"}, GOOD)
    assert "toy" in plugins.choices("compression")
    assert plugins.options("compression", {"name": "toy", "k": 3}).k == 3
    assert "compression  toy" in listing().stdout


def test_listing_choices_imports_nothing(install):
    install("geomx-loud", {"compression.loud": "geomx_loud:Loud"}, "raise SystemExit('imported')")
    assert "loud" in plugins.choices("compression")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import nothere", "ModuleNotFoundError: No module named 'nothere'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("", "AttributeError: module 'geomx_bad' has no attribute 'Bad'"),
        ("class Bad: pass", "TypeError: geomx_bad:Bad must be a dataclass without a field 'name'"),
        (
            "import dataclasses\n@dataclasses.dataclass\nclass Bad:\n    name: str = ''",
            "TypeError: geomx_bad:Bad must be",
        ),
    ],
)
def test_a_broken_plugin_is_an_error_when_chosen_and_a_line_otherwise(install, code, reason):
    install("geomx-bad", {"compression.bad": "geomx_bad:Bad"}, code)
    sys.modules.pop("geomx_bad", None)
    with pytest.raises(ConfigError) as e:
        plugins.load("compression", "bad")
    assert str(e.value).startswith(f"compression=bad of geomx-bad 0.3 is broken: {reason}")
    found = listing()
    assert found.returncode == 1
    assert f"BROKEN: compression=bad of geomx-bad 0.3 is broken: {reason}" in found.stdout
    assert "hips" in found.stdout


def test_names_clash_loudly(install):
    install("geomx-one", {"compression.toy": "geomx_one:Toy"}, GOOD)
    install("geomx-two", {"compression.toy": "geomx_two:Toy"}, GOOD)
    with pytest.raises(ConfigError, match=r"is offered more than once, by geomx-one 0\.3 and geomx-two 0\.3: keep one"):
        plugins.load("compression", "toy")


def test_a_clash_with_a_preset(install):
    install("geomx-toy", {"experiment.none": "geomx_toy:Toy"}, GOOD)
    with pytest.raises(ConfigError, match=r"by geomx-toy 0\.3 and conf/experiment/none\.yaml: keep one"):
        plugins.load("experiment", "none")


def test_an_unknown_choice_lists_what_is_there():
    with pytest.raises(ConfigError, match="sync=fast is not installed; there are: fsa, mixed"):
        plugins.load("sync", "fast")


def test_without_an_installation_that_is_said(monkeypatch):
    monkeypatch.setattr(plugins, "offers", dict)
    assert "geomx itself must be installed" in plugins.unknown("sync", "fsa")


def test_code_behind_a_choice():
    class Options:
        target = "json:dumps"

    assert plugins.target(Options())([1]) == "[1]"
    Options.target = "nowhere:at_all"
    with pytest.raises(ConfigError, match="nowhere:at_all can't be had: ModuleNotFoundError"):
        plugins.target(Options())


def test_a_plugin_hydra_can_not_show_is_told(install):
    from geomx.config import source

    code = (
        "from dataclasses import dataclass\nfrom typing import Literal\n@dataclass\nclass Odd:\n    k: Literal[1] = 1\n"
    )
    install("geomx-odd", {"compression.odd": "geomx_odd:Odd"}, code)
    with pytest.raises(ConfigError, match="compression=odd is broken: ValidationError"):
        source.node("compression", "odd")
