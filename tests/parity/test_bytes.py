"""Bytes on the wire are a formula of shapes: what the nodes count, added up, and what fp16 saves.

For E elements of width W a round costs, whatever the cut into parts:

    LAN up    E * W for each worker           LAN down  E * W for each worker
    WAN up    E * W for each party            WAN down  E * W for each party

as payload, exactly. On top come the headers: at most HEADER bytes for each part that is sent.
"""

import importlib.util
import math

import numpy as np
import pytest

from geomx.tasks.shapes import MODELS
from geomx.testing import LocalCluster

HEADER = 48  # of a message with one part; small parts share one
PARTIES = [2, 1]
SHAPES = {"none": (0,), "bias": (7,), "conv": (8, 4, 3, 3), "dense": (100, 50), "halves": (33,)}
KINDS = {"halves": np.float16}


def trained(cluster, shapes, rounds, kinds=None):
    """Counters of `rounds` rounds and nothing else: before them all keys are known and all initial values pulled."""
    names = list(shapes)
    values = [np.ones(shape, (kinds or {}).get(name, np.float32)) for name, shape in shapes.items()]

    def begin(worker):
        worker.init(names, values)
        worker.pull(names, [v.copy() for v in values])

    def work(worker):
        outs = [v.copy() for v in values]
        for _ in range(rounds):
            worker.push_pull(names, values, outs)
        return b"".join(out.tobytes() for out in outs)

    cluster.run(begin)
    before = cluster.counters()
    results = cluster.run(work)
    assert len(set(results)) == 1
    after = cluster.counters()
    return {what: after[what] - before[what] for what in after}


def parts_of(shapes, part_elements):
    """Where nothing is spread over servers."""
    return sum(max(1, math.ceil(math.prod(s) / part_elements)) for s in shapes.values())


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("part_elements", [10, 262144])
@pytest.mark.parametrize("bound", [1, 10**6])
def test_two_tiers(servers, part_elements, bound):
    rounds = 3
    config = {"topology": {"bigarray_bound": bound}, "scheduler": {"fifo": {"part_elements": part_elements}}}
    with LocalCluster(PARTIES, global_servers=servers, config=config) as cluster:
        counted = trained(cluster, SHAPES, rounds, KINDS)
    size = sum(math.prod(s) * np.dtype(KINDS.get(name, np.float32)).itemsize for name, s in SHAPES.items())
    parts = parts_of(SHAPES, part_elements) + (servers - 1) * len(SHAPES)  # at most
    for tier, members in (("lan", sum(PARTIES)), ("wan", len(PARTIES))):
        for way in ("up", "down"):
            assert counted[f"{tier}.{way}_payload_bytes"] == size * members * rounds
            headers = counted[f"{tier}.{way}_bytes"] - size * members * rounds
            assert 0 < headers <= HEADER * parts * members * rounds
        assert counted[f"{tier}.init_bytes"] == 0
        assert counted[f"{tier}.dropped_parts"] == 0
    assert counted["refused_frames"] == 0


def test_flat():
    with LocalCluster(PARTIES, flat=True) as cluster:
        counted = trained(cluster, SHAPES, 2, KINDS)
    size = sum(math.prod(s) * np.dtype(KINDS.get(name, np.float32)).itemsize for name, s in SHAPES.items())
    for way in ("up", "down"):
        assert counted[f"wan.{way}_payload_bytes"] == size * 3 * 2
        assert counted[f"lan.{way}_bytes"] == 0


def test_initial_values_are_counted_apart():
    """Once up from the authority, once down to each party and each worker that pulls it."""

    def work(worker):
        worker.init("k", np.ones(1000, np.float32))
        worker.pull("k", np.zeros(1000, np.float32))

    with LocalCluster(PARTIES) as cluster:
        cluster.run(work)
        counted = cluster.counters()
    for way in ("up", "down"):
        assert counted[f"lan.{way}_bytes"] == counted[f"wan.{way}_bytes"] == 0
    assert 4000 * (1 + 3) < counted["lan.init_bytes"] <= 4000 * (1 + 3) + HEADER * 8
    assert 4000 * (1 + 2) < counted["wan.init_bytes"] <= 4000 * (1 + 2) + HEADER * 8


def test_a_value_that_only_some_pull_is_sent_to_all_who_pushed_and_no_more():
    """One trip: the answer to a push is the value; a second pull of it costs a second value."""

    def begin(worker):
        worker.push_pull("k", np.ones(1000, np.float32))

    with LocalCluster([1, 1]) as cluster:
        cluster.run(begin)
        before = cluster.counters()
        cluster.run(lambda w: w.push("k", np.ones(1000, np.float32)))
        cluster.run(lambda w: w.barrier(world=True))
        cluster.run(lambda w: w.pull("k", np.zeros(1000, np.float32)))
        once = cluster.counters()
        cluster.run(lambda w: w.pull("k", np.zeros(1000, np.float32)))
        twice = cluster.counters()
    assert once["lan.down_payload_bytes"] - before["lan.down_payload_bytes"] == 2 * 4000
    assert once["wan.down_payload_bytes"] - before["wan.down_payload_bytes"] == 2 * 4000
    assert twice["lan.down_payload_bytes"] - once["lan.down_payload_bytes"] == 2 * 4000
    assert twice["wan.down_payload_bytes"] == once["wan.down_payload_bytes"]


@pytest.mark.skipif(importlib.util.find_spec("geomx_fp16") is None, reason="needs the fp16 plugin (make setup)")
@pytest.mark.parametrize("form", ["float16", "bfloat16"])
def test_fp16_sends_half_as_much_on_both_tiers_headers_included(form):
    shapes = dict(MODELS["resnet50"]())
    counted = {}
    for choice in ({"name": "none"}, {"name": "fp16", "format": form}):
        with LocalCluster([1, 1], config={"compression": choice}, deadline_s=50) as cluster:
            counted[choice["name"]] = trained(cluster, shapes, 1)
    size = sum(math.prod(s) for s in shapes.values())
    for tier in ("lan", "wan"):
        for way in ("up", "down"):
            assert counted["fp16"][f"{tier}.{way}_payload_bytes"] == 2 * size * 2
            ratio = counted["none"][f"{tier}.{way}_bytes"] / counted["fp16"][f"{tier}.{way}_bytes"]
            assert ratio >= 1.98
