"""`python -m geomx.plugin check`: a plugin that crashes, hangs or can't be imported costs a row, not the table; and
suites find what is wrong."""

import sys

import pytest

from geomx import conformance, plugin, plugins
from geomx.conformance import Row, _folded, judge, table
from geomx.testing.scheduler_suite import SchedulerSuite

TOY = """
from dataclasses import dataclass
from geomx.api import Scheduler, option

@dataclass
class Toy(Scheduler):
    part_elements: int = option(1000, "elements of a part at most", at_least=1)
    unexplained: int = 1

    def credit_bytes(self, tier, line):
        return -1

    def rank(self, name, order, length, tier):
        return hash(name) % 1000
"""

# A child that tells of two checks; in the second one it does what it is given, unless that one was told of before.
CHILD = """
import json, os, signal, sys, time
pipe = os.fdopen(int(sys.argv[1]), "w", buffering=1)
done = json.load(sys.stdin)
def tell(what, check="", **more):
    print(json.dumps({{"what": what, "title": "t", "check": check, **more}}), file=pipe)
for check in ("one", "two", "three"):
    if ["t", check] not in done:
        tell("begins", check)
        if check == "two":
            {}
        tell("case", check, result="passed", sentence="")
tell("over")
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """install(code): a scheduler of a distribution geomx-toy, as pip would leave it."""

    def put(code):
        info = tmp_path / "geomx_toy-0.3.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: geomx-toy\nVersion: 0.3\n")
        (info / "entry_points.txt").write_text("[geomx.plugins]\nscheduler.toy = geomx_toy:Toy\n")
        (tmp_path / "geomx_toy.py").write_text(code)

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    plugins.offers.cache_clear()
    yield put
    plugins.offers.cache_clear()
    sys.modules.pop("geomx_toy", None)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the process was killed by SIGSEGV here"),
        ("sys.exit('so it ends')", "the process ended with exit code 1 here: so it ends"),
        ("time.sleep(1000)", "expected to end within 5 s, and hung"),
    ],
)
def test_a_crash_or_a_hang_costs_one_row(monkeypatch, act, said):
    monkeypatch.setattr(conformance, "SILENT_S", 5.0)
    monkeypatch.setattr(conformance, "_command", lambda _, pipe: [sys.executable, "-c", CHILD.format(act), str(pipe)])
    assert judge(["any"]) == [
        Row("t", "one", "passed", ""),
        Row("t", "two", "failed", said),
        Row("t", "three", "passed", ""),
    ]


def test_after_many_crashes_it_gives_up(monkeypatch):
    code = "import os, json\nos.fdopen({}, 'w').write(json.dumps(dict(what='begins', title='t', check='x')) + '\\n')"
    monkeypatch.setattr(conformance, "_command", lambda _, pipe: [sys.executable, "-c", code.format(pipe)])
    assert judge(["any"])[-1] == Row("t", "the rest", "failed", "not run, after 5 crashes")


def test_what_cannot_be_imported_is_told(install):
    install("import no_such_module")
    (row,) = judge(["geomx-toy"])
    assert row.result == "failed"
    assert "scheduler=toy of geomx-toy 0.3 is broken" in row.sentence and "no_such_module" in row.sentence


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("each_option_says_what_it_is_for", "unexplained: expected option"),
        ("there_is_credit", "expected bytes, got -1"),
        ("every_node_ranks_the_same", "in another; nodes must agree"),
    ],
)
def test_a_suite_finds_what_is_wrong(install, check, said):
    install(TOY)
    suite = SchedulerSuite()
    suite.choice = "scheduler=toy"
    with pytest.raises(AssertionError, match=said):
        getattr(suite, f"test_{check}")()


@pytest.mark.parametrize(("result", "code"), [("passed", 0), ("skipped", 0), ("failed", 1)])
def test_the_exit_code_says_whether_something_failed(monkeypatch, capsys, result, code):
    monkeypatch.setattr(conformance, "judge", lambda names: [Row("geomx: task=any", "it fits", result, "so it is")])
    assert plugin.main(["check", "geomx"]) == code
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  task=any", f"    it fits  {result:7}  so it is", f"  1 {result}"
    ]  # fmt: skip


def test_cases_of_a_check_are_one_row_with_the_worst_of_them():
    rows = _folded(
        [
            Row("t", "fits[1]", "passed", ""),
            Row("t", "fits[2]", "failed", "too long"),
            Row("t", "ends", "skipped", "no"),
        ]
    )
    assert rows == [Row("t", "fits (2 cases)", "failed", "too long"), Row("t", "ends", "skipped", "no")]
    assert table(rows).splitlines() == [
        "  t",
        "    fits (2 cases)  failed   too long",
        "    ends            skipped  no",
        "  1 skipped, 1 failed",
    ]
