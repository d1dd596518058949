"""How commands end: nobody reads their output, Ctrl-C, a mistake. Each promise for all of them at once."""

import ast
import os
import subprocess
import sys

import pytest
from conftest import ROOT

from geomx import cli
from geomx.errors import ConfigError, RunFailed

# What runs a script or a node ends by rules of its own; the others are children that a parent reads.
OTHERS = {"exec", "node", "testing.judged", "bench.our_worker", "bench.stock_worker", "bench.wan_worker"}


def test_every_command_ends_the_same_way():
    found = {}
    for file in (ROOT / "geomx").rglob("*.py"):
        text = file.read_text()
        if 'if __name__ == "__main__":' in text and "templates" not in file.parts:
            name = ".".join(file.relative_to(ROOT / "geomx").with_suffix("").parts)
            mains = [f for f in ast.walk(ast.parse(text)) if isinstance(f, ast.FunctionDef) and f.name == "main"]
            found[name] = [d.id for f in mains for d in f.decorator_list if isinstance(d, ast.Name)]
    assert found.pop("plan") == []  # its command is predict's
    assert {name for name, decorators in found.items() if decorators != ["command"]} == OTHERS


@pytest.mark.parametrize(
    "words",
    [
        ["geomx", "--cmake-dir"],
        ["geomx.plugins"],
        ["geomx.plugin", "new", "-h"],
        ["geomx.reference"],
        ["geomx.bench", "--list"],
        ["geomx.report", "-h"],
        ["geomx.run", "--cfg", "job"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("streams", [("stdout",), ("stdout", "stderr")], ids="+".join)
def test_nobody_reads_its_output(words, streams, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        piped = {"stderr": subprocess.PIPE, **dict.fromkeys(streams, writing)}
        ended = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, check=False, text=True, **piped)
    finally:
        os.close(writing)
    assert ended.returncode in (0, cli.UNREAD)
    assert not ended.stderr


@pytest.mark.parametrize("name", ["plugins", "doctor", "combinations"])
def test_a_command_without_words_answers_h_and_refuses_others(name):
    told, refused = (
        subprocess.run([sys.executable, "-m", f"geomx.{name}", word], check=False, text=True, capture_output=True)
        for word in ("-h", "word")
    )
    assert told.returncode == 0 and told.stdout.startswith(f"usage: python -m geomx.{name}")
    assert refused.returncode == 2 and not refused.stdout


def test_all_commands_are_listed():
    told = subprocess.run([sys.executable, "-m", "geomx"], check=False, text=True, capture_output=True).stdout
    mains = {f.stem for f in (ROOT / "geomx").glob("*.py") if 'if __name__ == "__main__":' in f.read_text()}
    mains |= {f.parent.name for f in (ROOT / "geomx").glob("*/__main__.py")}
    mains -= {"__main__", "predict", "conformance"}  # plan's, and what a command calls
    assert {m for m in mains if f"python -m geomx.{m} " not in told} == set()


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (ConfigError("a=b: not allowed"), 2, "geomx: a=b: not allowed\n"),
        (RunFailed("worker 0 died"), 1, "geomx: worker 0 died\n"),
        (KeyboardInterrupt(), 130, "geomx: interrupted\n"),
    ],
)
def test_what_is_told_is_a_sentence_and_a_code(raised, code, told, capsys):
    @cli.command
    def main():
        raise raised

    assert main() == code
    assert capsys.readouterr() == ("", told)


def test_another_pipe_that_breaks_is_a_fault():
    """In a process of its own: pytest's streams are no files."""
    code = "from geomx.cli import command\n@command\ndef main(): raise BrokenPipeError('of a child')\nmain()"
    ended = subprocess.run([sys.executable, "-c", code], check=False, text=True, capture_output=True)
    assert ended.returncode == 1
    assert ended.stderr.endswith("BrokenPipeError: of a child\n")
