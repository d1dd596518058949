"""What nodes tell of the rounds that a timeline wants, and that they tell nothing else."""

import json
from collections import Counter, defaultdict

import numpy as np
import pytest

from geomx import timeline
from geomx.testing import LocalCluster

TITLES = {"global server 0": "global_server0",
          **{f"local server of party party{p}": f"party{p}.server" for p in (0, 1)},
          **{f"worker {w} of party party{p}": f"party{p}.worker{w}" for p, w in ((0, 0), (0, 1), (1, 0))}}  # fmt: skip


def kinds(lines, *, round_=None):
    spans = [line.split(" ") for line in lines.splitlines() if line.startswith("span ")]
    return Counter((s[1], s[2], s[3]) for s in spans if round_ is None or int(s[7]) == round_)


def work(worker):
    values = [np.ones(10, np.float32), np.ones(1000, np.float32)]
    outs = [v.copy() for v in values]
    worker.init(["a", "b"], values)
    for _ in range(6):
        worker.push_pull(["a", "b"], values, outs)


def traced(**trace):
    with LocalCluster([2, 1], config={"trace": trace}) as cluster:
        cluster.run(work)
        return {name: node.take_trace() for name, node in cluster.nodes.items()}


def test_each_step_of_a_parts_way_is_told_once_a_round():
    told = traced(rounds=[3, 4])
    up, down = ("lan", "up"), ("lan", "down")
    for round_ in (3, 4):
        assert kinds(told["party0.worker0"], round_=round_) == {
            ("encode", *up): 2, ("queue", *up): 2, ("receive", *down): 2, ("decode", *down): 2}  # fmt: skip
        assert kinds(told["party0.server"], round_=round_) == {
            ("receive", *up): 4, ("merge", *up): 4, ("open", *up): 2, ("encode", "wan", "up"): 2,
            ("queue", "wan", "up"): 2, ("receive", "wan", "down"): 2, ("decode", "wan", "down"): 2,
            ("encode", *down): 2, ("queue", *down): 4}  # fmt: skip
        assert kinds(told["global_server0"], round_=round_) == {
            ("receive", "wan", "up"): 4, ("merge", "wan", "up"): 4, ("open", "wan", "up"): 2,
            ("encode", "wan", "down"): 2, ("queue", "wan", "down"): 4}  # fmt: skip
    assert sum(kinds(told["party0.worker0"]).values()) == 16
    assert "peer lan" in told["party0.server"] and "worker 1 of party party0" in told["party0.server"]


def test_spans_begin_before_they_end_and_follow_each_other():
    told = traced(rounds=[1, 6])
    for lines in told.values():
        times = [tuple(map(int, line.split(" ")[8:])) for line in lines.splitlines() if line.startswith("span ")]
        assert all(begin <= end for begin, end in times)
        ends = [end for _, end in times]
        assert ends == sorted(ends)


def test_a_full_buffer_is_told():
    told = traced(rounds=[1, 6], max_spans=5)
    assert sum(kinds(told["party0.server"]).values()) == 5
    assert told["party0.server"].splitlines()[-1].startswith("dropped ")


@pytest.mark.parametrize("rounds", [[], [100, 200]])
def test_nothing_is_told_otherwise(rounds):
    assert set(traced(rounds=rounds).values()) == {""}


def test_the_file_is_what_perfettos_importer_takes(tmp_path):
    """Its rules for JSON: slices with a time and no negative length that nest on their track; flow events that begin
    once, end once, go forward and lie within a slice."""
    for name, lines in traced(rounds=[2, 4]).items():
        timeline.append(tmp_path, name, lines)
    file = timeline.assemble(tmp_path, TITLES)
    events = json.loads(file.read_text())["traceEvents"]
    slices, flows = defaultdict(list), defaultdict(list)
    for event in events:
        assert isinstance(event["name"], str) and isinstance(event["pid"], int)
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "M":
            assert event["name"] in ("process_name", "process_sort_index", "thread_name") and event["args"]
        else:
            assert event["ph"] in "stf" and (event["ph"] != "f" or event["bp"] == "e")
            flows[event["cat"], event["id"]].append(event)
    for track in slices.values():
        nests(sorted(track, key=lambda s: (s[0], -s[1])))
    assert len(flows) == 3 * 3 * 2  # rounds, workers, keys
    for way in flows.values():
        assert [e["ph"] for e in way] == ["s", *"t" * (len(way) - 2), "f"] and len(way) == 8
        assert [e["ts"] for e in way] == sorted(e["ts"] for e in way)
        for event in way:
            assert any(begin <= event["ts"] <= end for begin, end in slices[event["pid"], event["tid"]]), event


def nests(track):
    open_until = []
    for begin, end in track:
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        assert not open_until or end <= open_until[-1]
        open_until.append(end)
