"""python -m geomx.exec: exit codes, and what the cluster hears of the script's end."""

import subprocess
import sys

import pytest

PRELUDE = """
import sys
sys.path[:0] = {path!r}
import conftest
from fake_core import Cluster
from geomx.spec import DomainSpec, NodeSpec
from geomx import connect, exec, exits
cluster = Cluster(1)
node = cluster.nodes[0]
node.fail = lambda message: print("failed:", message, flush=True)
node.leave = lambda timeout: print("left", flush=True)
spec = NodeSpec(role="worker", party="a", rank=0, lan=DomainSpec(
    scheduler_host="h", scheduler_port=1, num_servers=1, num_members=1))
def joined(make, kind):
    made = make(node, spec, kind)
    exits.watch(made)
    return made
connect.joined = joined
sys.exit(exec.main(sys.argv[1:]))
"""
WORKER = {"DMLC_ROLE": "worker", "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "9", "DMLC_NUM_SERVER": "1",
          "DMLC_NUM_WORKER": "1"}  # fmt: skip


def run(tmp_path, script, *arguments, **environ):
    (tmp_path / "script.py").write_text(script)
    prelude = PRELUDE.format(path=[p for p in sys.path if p])
    return subprocess.run([sys.executable, "-c", prelude, str(tmp_path / "script.py"), *arguments], cwd=tmp_path,
                          capture_output=True, text=True, timeout=150, env={**WORKER, **environ})  # fmt: skip


def test_a_run_that_is_not_there_is_a_sentence_and_a_place(tmp_path):
    """Not the fake: a worker whose scheduler doesn't answer."""
    (tmp_path / "script.py").write_text("import geomx.connect\n\ndef begin():\n    geomx.connect.store()\n\nbegin()\n")
    command = [sys.executable, "-m", "geomx.exec", "script.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False,
                         env={**WORKER, "GEOMX_JOIN_S": "1"})  # fmt: skip
    assert ran.returncode == 1
    sentence, place = [line for line in ran.stderr.splitlines() if "INFO" not in line]
    assert sentence.startswith("geomx: the scheduler of the party of 127.0.0.1:9") and "did not answer" in sentence
    assert place == "  in script.py, line 4"


@pytest.mark.parametrize(("word", "code"), [("-h", 0), ("--help", 0), ("--no-such", 2)])
def test_help_is_not_a_mistake(word, code):
    ran = subprocess.run([sys.executable, "-m", "geomx.exec", word], capture_output=True, text=True, check=False)
    assert ran.returncode == code and "python -m geomx.exec SCRIPT" in (ran.stderr if code else ran.stdout)


CREATE = "import mxnet as mx\nkv = mx.kv.create('dist_sync')\n"


@pytest.mark.parametrize(
    ("script", "code", "out", "err"),
    [
        ("import sys\nprint(sys.argv[1:], __name__)\n" + CREATE, 0, "['-x'] __main__\nleft\n", ""),
        (CREATE + "import sys\nsys.exit(7)", 7, ("failed: worker 0 of party a: RuntimeError: the script ended "
         "with exit code 7\n"), ""),
        (CREATE + "raise ValueError('bad data')", 1, "failed: worker 0 of party a: ValueError: bad data\n",
         "Traceback (most recent call last):\n  File"),
        (CREATE + "raise KeyboardInterrupt", 130, "failed: worker 0 of party a: KeyboardInterrupt\n",
         "geomx: interrupted"),
        (CREATE + "kv.set_optimizer('sgd', momentum=2)", 2, ("failed: worker 0 of party a: geomx.errors.ConfigError: "
         "optimizer sgd: momentum: 2 given, allowed is a number from 0 and below 1\n"), "geomx: optimizer sgd: m"),
        ("print('no store')", 0, "no store\n", ""),
    ],
)  # fmt: skip
def test_the_scripts_end_is_passed_on(tmp_path, script, code, out, err):
    ran = run(tmp_path, script, "-x")
    assert (ran.returncode, ran.stdout) == (code, out), ran.stderr
    assert err in ran.stderr


def test_an_error_that_nobody_waited_for_is_still_a_failure(tmp_path):
    script = CREATE + "kv.push(0, mx.nd.ones((2,)))\nkv.pull(0, mx.nd.ones((3,)))\n"
    ran = run(tmp_path, script)
    assert ran.returncode == 1 and "geomx: key '#0': (3,) float32 to pull into, it is (2,) float32" in ran.stderr
    assert "left" not in ran.stdout and "failed: worker 0 of party a" in ran.stdout


def test_a_refused_configuration_ends_before_the_script(tmp_path):
    ran = run(tmp_path, "print('ran')", DMLC_NUM_WORKER="two")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "geomx: DMLC_NUM_WORKER: 'two' given, allowed is a whole number from 1\n"
    ran = run(tmp_path, "print('ran')", DMLC_ROLE="server")
    assert (ran.returncode, ran.stdout) == (2, "")
