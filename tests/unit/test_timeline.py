"""The timeline of a run from what its nodes told, whole or not."""

import itertools
import json
from collections import Counter

import pytest

from geomx import timeline
from geomx.timeline import Span

NAMES = {"worker 0 of party a": "a.worker0", "local server of party a": "a.server", "global server 0": "global_server0"}
WORKER = """host A
key 0 fc weight
peer lan 1 local server of party a
step compute 5 0 100
span encode lan up -1 0 0 5 90 95
span queue lan up 1 0 0 5 95 100
step wait 5 100 900
span receive lan down 1 0 0 5 880 880
span decode lan down -1 0 0 5 880 890
"""
SERVER = """host A
key 0 fc weight
peer lan 2 worker 0 of party a
peer wan 1 global server 0
span receive lan up 2 0 0 5 150 150
span merge lan up 2 0 0 5 151 160
span open lan up -1 0 0 5 151 170
span queue wan up 1 0 0 5 170 200
span receive wan down 1 0 0 5 700 700
span decode wan down -1 0 0 5 700 710
span queue lan down 2 0 0 5 710 800
"""
GLOBAL = """host B
key 0 fc weight
peer wan 2 local server of party a
span receive wan up 2 0 0 5 {0} {0}
span merge wan up 2 0 0 5 {0} {1}
span update wan up -1 0 0 5 {1} {2}
span queue wan down 2 0 0 5 {2} {3}
"""
AHEAD = 1_000_000_000


@pytest.fixture
def run(tmp_path):
    """A worker, a local server and, on a host whose clock is a second ahead, a global server; WAN trips took 200 ns."""
    told = {"a.worker0": WORKER, "a.server": SERVER,
            "global_server0": GLOBAL.format(*(AHEAD + t for t in (400, 420, 450, 500)))}  # fmt: skip
    for node, lines in told.items():
        timeline.append(tmp_path, node, lines)
    return tmp_path


def made(run):
    return json.loads(timeline.assemble(run, NAMES).read_text())["traceEvents"]


def slices(events):
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    return {(processes[e["pid"]], e["cat"], e["args"].get("direction")): e for e in events if e["ph"] == "X"}


def test_clocks_of_two_hosts_are_aligned_by_what_they_sent_each_other(run):
    found = slices(made(run))
    assert found["a.server", "queue", "up"]["ts"] == pytest.approx(0.170)
    assert found["global_server0", "merge", "up"]["ts"] == pytest.approx(0.400)
    wire = found["global_server0", "wire", "up"]
    assert (wire["ts"], wire["dur"], wire["args"]["from"]) == (pytest.approx(0.2), pytest.approx(0.2), "a.server")


def test_an_arrow_goes_from_the_worker_to_the_global_server_and_back(run):
    events = made(run)
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    arrow = [e for e in events if e["ph"] in "stf"]
    assert [e["ph"] for e in arrow] == ["s", *"tttttt", "f"]
    assert [processes[e["pid"]] for e in arrow] == [
        "a.worker0", "a.server", "a.server", "global_server0", "global_server0", "a.server", "a.server", "a.worker0",
    ]  # fmt: skip
    assert [e["ts"] for e in arrow] == sorted(e["ts"] for e in arrow)
    for step in arrow:  # each end lies in a slice of its track
        around = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (step["pid"], step["tid"])]
        assert any(e["ts"] <= step["ts"] <= e["ts"] + e["dur"] for e in around)


def test_what_a_killed_node_had_told_is_there(run):
    file = run / "trace" / "global_server0.txt"
    file.write_text(file.read_text()[: file.read_text().index("span update") + 20])
    (run / "trace" / "a.worker0.txt").unlink()
    found = slices(made(run))
    assert ("global_server0", "merge", "up") in found and ("global_server0", "update", "up") not in found
    assert {node for node, _, _ in found} == {"global_server0", "a.server"}


def test_what_overlaps_gets_tracks_of_its_own(run):
    lines = [f"span queue lan up 1 0 {part} 5 {part} {part + 25}\n" for part in range(100)]
    timeline.append(run, "a.worker0", "".join(lines))
    events = made(run)
    queues = Counter((e["pid"], e["tid"]) for e in events if e.get("cat") == "queue" and "part" in e["args"])
    assert max(queues.values()) < 10
    for track in queues:
        mine = sorted((e["ts"], e["dur"]) for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == track)
        assert all(a[0] + a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(mine))


def test_keys_are_called_by_their_names_and_losses_are_told(run):
    timeline.append(run, "a.server", "dropped 12\n")
    events = made(run)
    assert any(e["name"] == "encode fc weight" for e in events)
    assert any(e["name"] == "process_name" and e["args"]["name"] == "a.server (12 spans dropped)" for e in events)


def test_without_spans_there_is_no_file(tmp_path, capsys):
    assert timeline.assemble(tmp_path, {}) is None
    (tmp_path / "summary.json").write_text(json.dumps({"nodes": []}))
    assert timeline.main([str(tmp_path)]) == 2
    assert "run with trace.rounds=[first,last]" in capsys.readouterr().err


def test_by_hand_it_is_made_again_from_a_run_directory(run, capsys):
    nodes = [{"role": "worker", "party": "a", "rank": 0, "name": "a.worker0"},
             {"role": "local_server", "party": "a", "rank": 0, "name": "a.server"},
             {"role": "global_server", "party": "central", "rank": 0, "name": "global_server0"}]  # fmt: skip
    (run / "summary.json").write_text(json.dumps({"nodes": nodes}))
    assert timeline.main([str(run)]) == 0
    assert len([e for e in json.loads((run / "trace.json").read_text())["traceEvents"] if e["ph"] in "stf"]) == 8


def test_a_span_that_was_lost_ends_no_arrow():
    way = Span("queue", 5, 0, 1, "lan", "up", "a.server", 0, 0)
    assert list(timeline._way("a.worker0", way, {}, {})) == [("a.worker0", way)]
