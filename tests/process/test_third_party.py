"""A stranger's plugin: installed from outside the tree into a fresh virtual environment, then chosen by name."""

import json
import os
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugin_codec_python"
FAKE = Path(__file__).parent / "fake"


def _is_built() -> bool:
    """Asked elsewhere: in this process other tests may have put a stand-in in its place."""
    return (
        subprocess.run([sys.executable, "-c", "import geomx._core"], capture_output=True, check=False).returncode == 0
    )


HAS_CORE = _is_built()


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A fresh environment that sees what this one has, and the example on top."""
    folder = tmp_path_factory.mktemp("stranger")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    seen = [p for p in [*site.getsitepackages(), str(ROOT)] if Path(p).is_dir()]
    (packages / "_base.pth").write_text("\n".join(f"import site; site.addsitedir({p!r})" for p in seen) + "\n")
    shutil.copytree(EXAMPLE, folder / "source")
    made = folder / "venv" / "bin" / "python"
    install = [made, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check", folder / "source"]
    ended = subprocess.run(install, capture_output=True, text=True, check=False)
    if ended.returncode and "No matching distribution found for setuptools" in ended.stderr:
        pytest.skip("no package registry can be reached, and pip needs setuptools to build the example")
    assert ended.returncode == 0, ended.stderr
    return made


def environment(tmp_path, **more):
    path = "" if HAS_CORE else str(FAKE)
    return {**os.environ, "PYTHONPATH": path, "GEOMX_HOME": str(tmp_path), **more}


@pytest.mark.timeout(480)
def test_it_is_listed(python, tmp_path):
    command = [python, "-m", "geomx.plugins"]
    found = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment(tmp_path), check=False
    )
    assert "geomx-int8 0.1" in found.stdout, found.stderr


@pytest.mark.timeout(480)
def test_it_runs(python, tmp_path):
    words = ["tracking=none", "framework=numpy", "compression=int8", "compression.min_length=128", "task.max_rounds=4"]
    command = [python, "-m", "geomx.run", "hydra.run.dir=out", *words]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment(tmp_path), check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["config"]["compression"] == {"name": "int8", "min_length": 128}


@pytest.mark.timeout(480)
def test_its_mistakes_are_told_like_our_own(python, tmp_path):
    command = [python, "-m", "geomx.run", "compression=int8", "compression.min_length=-1"]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment(tmp_path), check=False
    )
    assert ended.returncode == 2
    assert "compression.min_length: -1 given, allowed is a whole number at least 0" in ended.stderr


@pytest.mark.timeout(480)
@pytest.mark.skipif(not HAS_CORE, reason="the core isn't built")
def test_a_codec_in_c_is_built_installed_and_keeps_what_every_codec_must_keep(python, tmp_path):
    shutil.copytree(ROOT / "examples" / "plugin_codec_c", tmp_path / "source")
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # cmake and ninja may be here only
    install = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", tmp_path / "source"]
    suite = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "source" / "tests"]
    listing = [python, "-m", "geomx.plugins"]
    for command, said in ((install, ""), (suite, " passed"), (listing, "geomx-nibble 0.1")):
        ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path,
                               env=environment(tmp_path, PATH=tools), check=False)  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert said in ended.stdout
