"""`python -m geomx.plugin check`: the suites of what a distribution offers, as a table with a sentence for what failed.

They run in a child, so that a plugin that crashes or hangs costs one row and not the table. The child (`geomx.testing.
judged`) writes a JSON line for each step to a pipe.
"""

import contextlib
import importlib.util
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, distribution, version
from typing import IO, Any

from geomx import plugins
from geomx.errors import ConfigError

SILENT_S = 120.0  # of one check, before the child is taken to hang
MOST_CRASHES = 5  # after which the rest isn't run
WORST = ("failed", "skipped", "passed")


@dataclass(frozen=True)
class Row:
    """One check, whatever number of cases it has."""

    title: str  # of the suite: "geomx-mine: compression=mine", "geomx-mine: codec mine"
    check: str
    result: str  # passed, failed, skipped
    sentence: str


def check(names: Sequence[str]) -> int:
    """Prints a table. Returns the exit code. Raises ConfigError where nothing can be checked."""
    if importlib.util.find_spec("pytest") is None:
        raise ConfigError("the suites need pytest, which is not installed: pip install pytest")
    names = list(dict.fromkeys(names))
    for name in names:
        _check_offers(name)
    print(", ".join(f"{distribution(name).name} {version(name)}" for name in names))
    rows = judge(names)
    print(table(rows if len(names) > 1 else [replace(row, title=row.title.partition(": ")[2]) for row in rows]))
    return 1 if any(row.result == "failed" for row in rows) else 0


def judge(names: Sequence[str]) -> list[Row]:
    """Runs all suites of distributions. After a crash another child goes on with what is left."""
    cases: list[Row] = []
    for _ in range(MOST_CRASHES):
        heard, is_over = _run(names, [(row.title, row.check) for row in cases])
        cases += heard
        if is_over:
            break
    else:
        cases.append(Row(cases[-1].title, "the rest", "failed", f"not run, after {MOST_CRASHES} crashes"))
    return _folded(cases)


def _run(names: Sequence[str], done: Sequence[tuple[str, str]]) -> tuple[list[Row], bool]:
    """Cases that one child told of, and whether that is all."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile("w+") as output, open(reading, buffering=1) as lines:  # noqa: PTH123  a descriptor
        child = subprocess.Popen(_command(names, writing), pass_fds=[writing], stdin=subprocess.PIPE, stdout=output,
                                 stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        os.close(writing)
        is_over = False
        try:
            assert child.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(json.dumps(done).encode())
                child.stdin.close()
            rows, is_over = _heard(child, lines, output)
            return rows, is_over
        finally:
            _end(child, 5.0 if is_over else 0.0)


def _command(names: Sequence[str], descriptor: int) -> list[str]:
    return [sys.executable, "-m", "geomx.testing.judged", str(descriptor), *names]


def table(rows: Sequence[Row]) -> str:
    """Titles are said once; a sentence stands below what it is about where it is long."""
    wide = max((len(row.check) for row in rows), default=0)
    lines, title = [], ""
    for row in rows:
        if row.title != title:
            title = row.title
            lines.append(f"  {title}")
        lines.append(f"    {row.check:{wide}}  {row.result:7}  {row.sentence}".rstrip())
    counts = {result: sum(row.result == result for row in rows) for result in reversed(WORST)}
    return "\n".join([*lines, "  " + ", ".join(f"{count} {result}" for result, count in counts.items() if count)])


def _check_offers(name: str) -> None:
    try:
        found = distribution(name).entry_points.select(group=plugins.ENTRY_POINTS)
    except (PackageNotFoundError, ValueError):
        raise ConfigError(
            f"no distribution {name!r} is installed here; python -m geomx.plugins lists plugins"
        ) from None
    if not [e for e in found if e.name.partition(".")[0] not in plugins.FUNCTIONS]:
        raise ConfigError(f"{name} offers no plugin: it has no entry points in the group {plugins.ENTRY_POINTS}")


def _heard(child: "subprocess.Popen[bytes]", lines: IO[str], output: IO[str]) -> tuple[list[Row], bool]:
    """A row for each case; one more where the child ended or hung before all were over."""
    rows: list[Row] = []
    now: dict[str, Any] = {"what": "case", "title": "entry points", "check": "the suites begin"}
    for line in _within(lines, SILENT_S):
        told = json.loads(line)
        if told["what"] == "over":
            return rows, True
        if told["what"] == "case":
            rows.append(Row(told["title"], told["check"], told["result"], told["sentence"]))
        now = told
    return [*rows, Row(now["title"], now["check"], "failed", _why(child, output))], now["what"] == "case"


def _why(child: "subprocess.Popen[bytes]", output: IO[str]) -> str:
    """What became of a child that didn't come to its end."""
    if not _ends(child, 1.0):
        return f"expected to end within {SILENT_S:g} s, and hung"
    code = child.wait()
    output.seek(0)
    last = [text for text in output.read().splitlines() if text.strip()][-1:]
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return ": ".join([f"the process {how} here", *(last if code > 0 else [])])


def _within(lines: IO[str], silent_s: float) -> Iterator[str]:
    """Lines until the pipe ends or is silent for so long."""
    descriptor, kept = lines.fileno(), b""
    while select.select([descriptor], [], [], silent_s)[0] and (piece := os.read(descriptor, 1 << 16)):
        *whole, kept = (kept + piece).split(b"\n")
        yield from (line.decode() for line in whole)


def _ends(child: "subprocess.Popen[bytes]", within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return child.poll() is not None


def _end(child: "subprocess.Popen[bytes]", within_s: float) -> None:
    """With whatever it has started."""
    if not _ends(child, within_s) or child.returncode:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _folded(cases: Sequence[Row]) -> list[Row]:
    """Cases of one check as one row: the worst of them, with its sentence."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for case in cases:
        groups.setdefault((case.title, re.sub(r"\[.*", "", case.check, flags=re.DOTALL)), []).append(case)
    found = []
    for (title, check_name), group in groups.items():
        worst = min(group, key=lambda row: WORST.index(row.result))
        count = f" ({len(group)} cases)" if len(group) > 1 else ""
        found.append(Row(title, check_name + count, worst.result, worst.sentence))
    return found
