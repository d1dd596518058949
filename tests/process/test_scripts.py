"""The launch scripts, run as the page says: each trains, with its technique on the wire. One party of one worker (two
where parties relay) and one epoch, so that all of them take half a minute."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from geomx.launch import accounts

ROOT = Path(__file__).parents[2]
SMALL = ["topology.workers=1", "tracking=none", "timeouts.join_s=120",
         'task.arguments=["--cpu","--data","digits","-ep","1","-bs","64","--eval-every","100"]']  # fmt: skip
PARTIES = {"run_tsengine": 2}


def codecs(summary):
    """What carried gradients between parties."""
    return {name.split()[0] for name in summary["ledger"]["wan"]["payload_by_codec"]}


def largest_part(directory):
    """Bytes that the largest tensor's part took up, inside a party; the network's largest has 32,768 elements."""
    rows = [r for r in accounts.read(directory / accounts.SENT_FILE) if (r["tier"], r["direction"]) == ("lan", "up")]
    return max(r["payload_bytes"] / r["frames"] for r in rows if r["key"])


SEEN = {  # script -> what its run shows
    "run_bisparse_compression": lambda s: "BSC1" in codecs(s),
    "run_fp16": lambda s: s["largest"] == 2 * 32_768,
    "run_mixed_precision": lambda s: "BSC1" in codecs(s) and s["largest"] == 4 * 32_768,
    "run_dgt": lambda s: s["transport"]["droppable_parts"] > 0,
    "run_tsengine": lambda s: "tsengine" in s["config"]["scheduler"],
    "run_p3": lambda s: "p3" in s["config"]["scheduler"],
    "run_multi_gps": lambda s: sum(n["role"] == "global_server" for n in s["nodes"]) == 2,
}


@pytest.mark.skipif(importlib.util.find_spec("mxnet") is None, reason="MXNet isn't installed")
@pytest.mark.parametrize("script", SEEN)
def test_a_script_trains(script, tmp_path):
    parties = PARTIES.get(script, 1)
    where = f"hydra.run.dir={tmp_path / 'run'}"
    command = ["bash", ROOT / "scripts" / "cpu" / f"{script}.sh", *SMALL, f"topology.parties={parties}", where]
    environment = {**os.environ, "PYTHON": sys.executable, "GEOMX_HOME": str(tmp_path)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    workers = [n["name"] for n in summary["nodes"] if n["role"] == "worker" and n["name"] != "master"]
    assert len(workers) == parties
    for name in workers:
        assert "finished" in (tmp_path / "run" / "logs" / f"{name}.log").read_text()
    assert SEEN[script](summary | {"largest": largest_part(tmp_path / "run")}), summary
