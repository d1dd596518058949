"""One plugin of each kind from its template, in a fresh environment with an installed geomx: built, checked, chosen."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from geomx import scaffold

ROOT = Path(__file__).parents[2]
KIT = [(kind, language) for kind, languages in scaffold.languages().items() for language in languages]
pytestmark = pytest.mark.timeout(240)


def name_of(kind, language):
    return f"own_{kind}_{language.replace('+', 'p')}"


def distribution_of(kind, language):
    return scaffold.distribution_name(name_of(kind, language))


class Place:
    """A folder with an environment of its own: nothing of this checkout is seen from it."""

    def __init__(self, folder):
        self.folder, self.python = folder, folder / "venv" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        # Dependencies as a plain path: what makes a checkout importable from there (.pth files) has no effect.
        (packages / "_base.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def run(self, *words, code=0):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # cmake and ninja may be here only
        environment = {**os.environ, "PATH": path, "GEOMX_HOME": str(self.folder), "PYTHONPATH": ""}
        command = [self.python, *words]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, env=environment, check=False)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def install(self, *what):
        pip = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", "install", "-q"]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        command = [*pip, "--no-deps", "--no-build-isolation", *what]
        environment = {**os.environ, "PATH": path, "PYTHONPATH": ""}
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    pytest.importorskip("geomx_fp16", reason="a template builds on it: pip install plugins/fp16")
    made = Place(tmp_path_factory.mktemp("kit"))
    wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", made.folder, ROOT]
    subprocess.run(wheel, check=True, capture_output=True)
    made.install(next(made.folder.glob("*.whl")))
    assert str(made.folder) in made.run("-c", "import geomx; print(geomx.__file__)")
    for kind, language in KIT:
        write = "import sys; from geomx.plugin import main; sys.exit(main(sys.argv[1:]))"
        made.run("-c", write, "new", kind, name_of(kind, language), "--language", language)
    made.install(*(made.folder / distribution_of(*k) for k in KIT))
    return made


def test_all_of_them_pass_their_suites(place):
    told = place.run("-m", "geomx.plugin", "check", *(distribution_of(*k) for k in KIT))
    assert "failed" not in told
    for kind, language in KIT:
        assert f"{distribution_of(kind, language)} 0.1\n" in told
    assert told.count("a short training") >= len(KIT)
