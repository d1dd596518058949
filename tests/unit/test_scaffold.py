"""`python -m geomx.plugin new`: what it writes is whole, and what it can't write is refused in a sentence."""

import re
import subprocess
import sys

import pytest

from geomx import plugin, scaffold
from geomx.api import __all__ as api
from geomx.errors import ConfigError

ALL = [(kind, language) for kind, languages in scaffold.languages().items() for language in languages]


@pytest.mark.parametrize(("kind", "language"), ALL)
def test_no_trace_of_the_template_is_left(tmp_path, kind, language):
    folder, files = scaffold.write(kind, "my_thing", language, tmp_path / "made")
    assert {str(f) for f in files} >= {
        "pyproject.toml",
        "README.md",
        "geomx_my_thing/__init__.py",
        "tests/test_my_thing.py",
    }
    for file in files:
        text = (folder / file).read_text()
        assert not re.search("yourname|'Y', 'O'|\"YOUR\"", text, re.IGNORECASE), file
        if file.suffix == ".py":
            compile(text, str(file), "exec")
    assert f'"{scaffold.GROUPS[kind]}.my_thing" = "geomx_my_thing:MyThing"' in (folder / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", ["", "Big", "1st", "a-b", "class", "a" * 31, "../x", "é"])
def test_names_that_no_plugin_can_have(tmp_path, name):
    with pytest.raises(ConfigError, match="NAME, allowed are small letters"):
        scaffold.write("codec", name, directory=tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_name_that_is_taken(tmp_path):
    with pytest.raises(ConfigError, match="compression=none is installed already"):
        scaffold.write("policy", "none", directory=tmp_path / "made")


@pytest.mark.parametrize("name", ["policy", "codec", "option", "compression"])
def test_a_name_whose_class_would_hide_another(tmp_path, name):
    if scaffold._class_name(name) in api:
        with pytest.raises(ConfigError, match="a name that its code uses"):
            scaffold.write("codec", name, directory=tmp_path / "made")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["codex", "mine"], "'codex' is no kind of plugin; there are: codec, policy"),
        (["policy", "mine", "--language", "c"], "a policy can't be written in 'c'; there are: python"),
        (["codec", "mine", "--directory", "{here}"], "is there already: give another NAME, or --directory"),
        (["codec", "Mine"], "'Mine' given as NAME"),
    ],
)
def test_mistakes_end_with_a_sentence_and_2(tmp_path, capsys, words, said):
    assert plugin.main(["new", *(w.format(here=tmp_path) for w in words)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("geomx: ") and said in told and "Traceback" not in told


def test_on_the_command_line(tmp_path):
    command = [sys.executable, "-m", "geomx.plugin", "new", "codec", "mine"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "geomx-mine/geomx_mine/codec.py" in ended.stdout
    assert "python -m geomx.plugin check geomx-mine" in ended.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [("geomx-nowhere", "no distribution 'geomx-nowhere' is installed here"), ("numpy", "numpy offers no plugin")],
)
def test_nothing_to_check(capsys, name, said):
    assert plugin.main(["check", name]) == 2
    assert said in capsys.readouterr().err
