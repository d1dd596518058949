"""Rounds over several servers that hold pieces of tensors."""

import math

import numpy as np
import pytest

pytest.importorskip("geomx_multigps", reason="the plugin isn't installed: pip install plugins/multigps")

from geomx_multigps import MultiGps
from geomx_multigps.models import MODELS

from geomx.agreed import united
from geomx.config import load
from geomx.testing import LocalCluster

NAMES = [name for name, _ in MODELS["seed_cnn"]]
SHAPES = [shape for _, shape in MODELS["seed_cnn"]]
MULTIGPS = {"name": "multigps"}


def rounds(worker, one_by_one=False, count=3):
    weights = [np.ones(shape, np.float32) for shape in SHAPES]
    if one_by_one:
        for name, weight in zip(NAMES, weights):
            worker.init(name, weight)
    else:
        worker.init(NAMES, weights)
    for number in range(count):
        gradients = [np.full(shape, (worker.global_rank + 1) * (number + 1), np.float32) for shape in SHAPES]
        worker.push_pull(NAMES, gradients, weights)
    return weights


@pytest.mark.parametrize("one_by_one", [False, True])
def test_sums_and_loads(one_by_one):
    with LocalCluster([2, 1], global_servers=4, config={"topology": MULTIGPS}) as cluster:
        found = cluster.run(lambda w: rounds(w, one_by_one))
        received = {}
        for name, node in cluster.nodes.items():
            if name.endswith(".server"):
                for tier, to, _, account, _, _, payload, _ in node.ledger()["sent"]:
                    if (tier, account) == ("wan", "up"):
                        received[to] = received.get(to, 0) + payload
    for weights in found:
        assert all((w == 6 * 3).all() for w in weights)
    assert len(received) == 4
    assert max(received.values()) <= 1.02 * sum(received.values()) / 4


@pytest.mark.parametrize("compression", ["none", "fp16", "bsc", "mpq"])
@pytest.mark.parametrize("sync", ["fsa", "mixed"])
def test_optimizers_on_the_servers_and_codecs(compression, sync):
    pytest.importorskip(f"geomx_{compression.replace('none', 'multigps')}")
    optimizer = {"where": "server", "name": "sgd", "learning_rate": 0.01}
    config = {
        "topology": MULTIGPS,
        "compression": {"name": compression},
        "sync": {"name": sync, "optimizer": optimizer},
    }
    with LocalCluster([1, 1], global_servers=3, config=config) as cluster:
        found = cluster.run(rounds)
    for i, shape in enumerate(SHAPES):
        values = found[0][i]
        assert np.isfinite(values).all() and values.max() <= 1
        if sync == "fsa":
            assert np.array_equal(values, found[1][i])
            if math.prod(shape) <= 1000 and compression in ("none", "bsc"):
                assert np.allclose(values, 1 - 0.01 * 3 * 6)


def test_by_hand_the_number_of_servers_chooses_it():
    topology = united(load({}), {"placement.name": "multigps", "placement.bigarray_bound": "7"}).topology
    assert isinstance(topology, MultiGps) and topology.bigarray_bound == 7
