"""One plugin of each kind from its template, in a fresh environment with an installed geomx: built, checked, chosen."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from geomx import scaffold

ROOT = Path(__file__).parents[2]
KIT = [(kind, language) for kind, languages in scaffold.languages().items() for language in languages]
# Names of plugins that are made wrong: a file, what is right in it, what takes its place.
BROKEN = {
    "bad_codec": ("codec.py", "residual[:] = wanted - steps * scale", "residual[:] = 0"),
    "bad_placement": ("__init__.py", "0, tensor.length)])", "0, tensor.length + 1)])"),
}
pytestmark = pytest.mark.timeout(480)


def name_of(kind, language):
    return f"own_{kind}_{language.replace('+', 'p')}"


def distribution_of(kind, language):
    return scaffold.distribution_name(name_of(kind, language))


WANTED = [(kind, language, name_of(kind, language)) for kind, language in KIT]
WANTED += [("codec", "python", "bad_codec"), ("placement", "python", "bad_placement")]


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
    write = f"from geomx.scaffold import write\nfor k, l, n in {WANTED}: write(k, n, l)"
    made.run("-c", write)
    for name, (file, right, wrong) in BROKEN.items():
        source = made.folder / scaffold.distribution_name(name) / f"geomx_{name}" / file
        assert right in source.read_text()
        source.write_text(source.read_text().replace(right, wrong))
    made.install(*(made.folder / scaffold.distribution_name(name) for *_, name in WANTED))
    return made


@pytest.fixture(scope="module")
def checked(place):
    """What check says of all of them, by suite: {"geomx-own-policy-python: compression=own_policy_python": lines}."""
    told = place.run("-m", "geomx.plugin", "check", *(scaffold.distribution_name(n) for *_, n in WANTED), code=1)
    assert "Traceback" not in told
    return dict(re.findall(r"^  (geomx\S+: .*)\n((?:    .*\n)+)", told, re.MULTILINE))


@pytest.mark.parametrize(("kind", "language"), KIT)
def test_each_passes_its_suites(checked, kind, language):
    name = name_of(kind, language)
    mine = {
        title: lines for title, lines in checked.items() if title.startswith(f"{distribution_of(kind, language)}: ")
    }
    assert f"{distribution_of(kind, language)}: {scaffold.GROUPS[kind]}={name}" in mine
    assert any("codec" in title for title in mine) == (kind in ("codec", "policy"))
    told = "".join(mine.values())
    assert re.search("a short training +passed", told) and "failed" not in told


def test_what_is_broken_is_told_in_a_sentence(checked):
    codec = checked["geomx-bad-codec: codec bad_codec"]
    assert re.search(r"nothing is lost over 50 rounds +failed +after 50 rounds at most \S+ may be missing of", codec)
    placement = checked["geomx-bad-placement: topology=bad_placement"]
    assert re.search(r"each element lies on one server .* failed .*expected each element on one server, the", placement)


def test_their_own_tests_pass(place):
    """Those that they come with besides the suites, which check has run."""
    suites = " or ".join(f"Test{kind}" for kind in scaffold.languages())
    folders = [str(place.folder / distribution_of(*k) / "tests") for k in KIT]
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-k", f"not ({suites})"]
    told = place.run("-m", "pytest", *options, *folders)
    assert re.search(rf"^{len(KIT)} passed", told, re.MULTILINE), told


def test_they_train_together(place):
    """Each place of a run is taken by a stranger."""
    words = [
        "compression=own_codec_c", "transport=own_transport_c", "scheduler=own_scheduler_python+own_overlay_c",
        "topology=own_placement_python", "tracking=own_observer_python", "launcher=own_launcher_python",
        "framework=numpy", "topology.parties=2", "topology.workers=1", "task.max_rounds=60",
    ]  # fmt: skip
    place.run("-m", "geomx.run", "hydra.run.dir=out", *words)
    summary = json.loads((place.folder / "out" / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert summary["accuracy"] > 0.5
    assert summary["ledger"]["wan"]["payload_by_codec"]["OWCC up"] > 0
    rounds = (place.folder / "out" / "rounds.csv").read_text().splitlines()
    assert len(rounds) == 1 + 60
