"""The child of `python -m geomx.plugin check`: runs the suites of distributions by pytest, and tells of each case on a
pipe, as a JSON line."""

import json
import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

MODULE = "from geomx.testing.suites import suites\nglobals().update(suites({!r}))\n"
LONGEST = 500


class Teller:
    """A pytest plugin. done: (title, check) of cases that are not to be run again."""

    def __init__(self, descriptor: int, done: list[list[str]]) -> None:
        self._pipe = os.fdopen(descriptor, "w", buffering=1)
        self._done = {(title, check) for title, check in done}

    def tell(self, what: str, **more: str) -> None:
        self._pipe.write(json.dumps({"what": what, "title": "", "check": "", **more}) + "\n")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Suite by suite; what trains comes last in each."""
        titles = list(dict.fromkeys(map(_title, items)))
        items[:] = [item for item in items if (_title(item), _check(item)) not in self._done]
        items.sort(key=lambda item: (titles.index(_title(item)), "training" in item.name))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._now = {"title": _title(item), "check": _check(item)}
        self.tell("begins", **self._now)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.tell("case", **self._now, result=report.outcome, sentence=_sentence(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome == "failed":
            title = f"{Path(report.nodeid).stem}: entry points"
            self.tell("case", title=title, check="what is offered can be loaded", result="failed",
                      sentence=_last_line(str(report.longrepr)))  # fmt: skip

    def pytest_sessionfinish(self) -> None:
        self.tell("over")


def _title(item: pytest.Item) -> str:
    """'geomx-mine: compression=mine'"""
    return f"{item.path.stem}: {getattr(getattr(item, 'cls', None), 'title', '')}"


def _check(item: pytest.Item) -> str:
    """'test_zeros_stay_zeros[64]' -> 'zeros stay zeros[64]'"""
    name, bracket, cases = item.name.removeprefix("test_").partition("[")
    return name.replace("_", " ") + bracket + cases


def _sentence(report: pytest.TestReport) -> str:
    """Why it failed or was skipped."""
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash: Any = getattr(report.longrepr, "reprcrash", None)
    message = str(crash.message if crash else report.longrepr).strip()
    first = message.splitlines()[0] if message else "it failed without a word"
    return first.removeprefix("AssertionError: ")[:LONGEST]


def _last_line(text: str) -> str:
    return ([line.removeprefix("E   ").strip() for line in text.splitlines() if line.strip()] or ["no word"])[-1]


def main(names: list[str], descriptor: int, done: list[list[str]]) -> int:
    """A module for each distribution, called after it."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:timeout", "--import-mode=importlib", "-c", os.devnull]
    with tempfile.TemporaryDirectory(prefix="geomx-check-") as folder:
        modules = [Path(folder) / f"{name}.py" for name in names]
        for module, name in zip(modules, names, strict=True):
            module.write_text(MODULE.format(name))
        where = [f"--rootdir={folder}", *map(str, modules)]
        return int(pytest.main([*options, *where], plugins=[Teller(descriptor, done)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], int(sys.argv[1]), json.load(sys.stdin)))
