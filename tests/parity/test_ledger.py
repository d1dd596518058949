"""The ledger of real nodes: its items add up to the counters of the same moment, to the byte, and are a formula."""

import math

import numpy as np
import pytest

from geomx.testing import LocalCluster

SHAPES = {"bias": (7,), "dense": (100, 50)}
ROUNDS = 3


def work(worker):
    values = [np.ones(s, np.float32) for s in SHAPES.values()]
    outs = [v.copy() for v in values]
    worker.init(list(SHAPES), values)
    for _ in range(ROUNDS):
        worker.push_pull(list(SHAPES), values, outs)


def told(cluster):
    return {name: node.ledger() for name, node in cluster.nodes.items()}


@pytest.mark.parametrize("config", [
    {"scheduler": {"fifo": {"part_elements": 1000}}},
    {"compression": {"name": "fp16"}},
    "flat",
    {"topology": {"name": "hips", "global_servers": 2, "central_workers": 1, "bigarray_bound": 10}},
])  # fmt: skip
def test_items_add_up_to_the_counters_of_each_node(config):
    how = {"flat": True} if config == "flat" else {"config": config}
    with LocalCluster([2, 1], **how) as cluster:
        cluster.run(work)
        ledgers = told(cluster)
    for name, ledger in ledgers.items():
        for tier in ("lan", "wan"):
            rows = [r for r in ledger["sent"] if r[0] == tier]
            for account in ("up", "down", "init", "control"):
                total = sum(r[6] + r[7] for r in rows if r[3] == account)
                assert total == ledger["counters"][f"{tier}.{account}_bytes"], (name, tier, account)
            for account in ("up", "down"):
                total = sum(r[6] for r in rows if r[3] == account)
                assert total == ledger["counters"][f"{tier}.{account}_payload_bytes"]
            assert ledger["counters"][f"{tier}.messages"] == 0 or any(not r[2] for r in rows)
    assert sum(r[6] for ledger in ledgers.values() for r in ledger["sent"]) > 0


def test_payload_of_each_key_and_link_is_what_its_shape_says():
    with LocalCluster([2, 1]) as cluster:
        cluster.run(work)
        ledgers = told(cluster)
    for name, shape in SHAPES.items():
        once = math.prod(shape) * 4 * ROUNDS
        up = {n: [r for r in ledger["sent"] if r[2:4] == (name, "up") and r[4]] for n, ledger in ledgers.items()}
        down = {n: [r for r in ledger["sent"] if r[2:4] == (name, "down")] for n, ledger in ledgers.items()}
        assert [r[6] for r in up["party0.worker0"]] == [once] and up["party0.worker0"][0][0] == "lan"
        assert [r[6] for r in up["party1.server"]] == [once] and up["party1.server"][0][0] == "wan"
        assert sorted(r[1] for r in down["party0.server"]) == ["worker 0 of party party0", "worker 1 of party party0"]
        assert [r[6] for r in down["global_server0"]] == [once] * 2
        assert all(r[5] == ROUNDS for rows in (up, down) for found in rows.values() for r in found)


def test_codec_seconds_are_kept_by_key():
    with LocalCluster([1, 1], config={"compression": {"name": "fp16"}}) as cluster:
        cluster.run(work)
        ledgers = told(cluster)
    for name, tier, places in [("party0.worker0", "lan", (2, 5)), ("party0.server", "wan", (2, 5)),
                               ("party0.server", "lan", (3, 4)), ("global_server0", "wan", (3, 4))]:  # fmt: skip
        rows = {r[1]: r for r in ledgers[name]["work"] if r[0] == tier}
        assert set(rows) == set(SHAPES)
        for row in rows.values():
            assert all(row[i] > 0 for i in places), (name, tier, row)
