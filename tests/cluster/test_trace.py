"""What nodes tell of the rounds that a timeline wants, and that they tell nothing else."""

from collections import Counter

import numpy as np
import pytest

from geomx.testing import LocalCluster


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
