"""task=script: a user's script is each worker, under the launcher."""

import importlib.util

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("geomx.exec") is None, reason="geomx.exec isn't there")

SCRIPT = """
import os, sys
spec = connect.spec_of(os.environ)
built = connect.join(spec)
node = built.node
print("I am", spec.title, sys.argv[1:], sys.stdin.read())
{extra}
node.leave()
built.close()
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """What a script's store checks is of no matter here."""

    def write(extra=""):
        file = tmp_path / "own.py"
        file.write_text(f"from geomx import connect\nconnect._check_world = print\n{SCRIPT.format(extra=extra)}")
        return f"task.script={file}"

    return write


def test_each_worker_runs_it_and_a_master_is_added(begin, script):
    ended = begin("task=script", script(), "task.arguments=[a,'b c']").wait()
    assert ended.code == 0, ended.output
    workers = [n["name"] for n in ended.summary["nodes"] if n["role"] == "worker"]
    assert workers == ["master", "party0.worker0", "party0.worker1", "party1.worker0", "party1.worker1"]
    logs = {name: (ended.directory / "logs" / f"{name}.log").read_text() for name in workers}
    assert "I am worker 1 of party party0 ['a', 'b c']" in logs["party0.worker1"]
    assert "I am master worker" in logs["master"]
    assert ended.summary["rounds"] == 0


def test_one_that_raises_ends_the_run(begin, script):
    """The others wait for the end of the run, by the scripted core's own means."""
    raises = (
        "if (spec.party, spec.rank) == ('party1', 1): raise ValueError('boom')\nnode._until_over(node.links['lan'])"
    )
    ended = begin("task=script", script(raises)).wait()
    assert ended.code == 1
    assert ended.summary["error"].startswith("worker 1 of party party1: ")
    assert "own.py: ValueError: boom" in ended.summary["error"]
    assert "ValueError: boom" in (ended.directory / "logs" / "party1.worker1.log").read_text()


def test_no_master_where_the_topology_says_so(begin, script):
    ended = begin("task=script", script(), "topology.observer=no").wait()
    assert ended.code == 0, ended.output
    assert "master" not in [n["name"] for n in ended.summary["nodes"]]
