"""Deterministic mode: the weights of N rounds are, bit for bit, those of one process that adds in the same order.

The order: workers by rank inside a party, then parties by rank, the central party last; float32, nothing fused. The
optimizers below are the formulas of geomx/core/reduce.h written in numpy, one operation at a time.
"""

import numpy as np
import pytest

from geomx.testing import LocalCluster

ROUNDS = 8
SHAPES = {"conv.weight": (5, 3, 3, 3), "conv.bias": (5,), "dense.weight": (11, 13), "empty": (0,), "one": (1,)}
f32 = np.float32


class Sgd:
    setting = {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9, "wd": 0.001}

    def __init__(self, n):
        self.velocity = np.zeros(n, f32)

    def step(self, weight, gradient):
        decayed = gradient + f32(0.001) * weight
        self.velocity = f32(0.9) * self.velocity - f32(0.05) * decayed
        return weight + self.velocity


class Adam:
    setting = {"name": "adam", "learning_rate": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}

    def __init__(self, n):
        self.mean, self.variance, self.count = np.zeros(n, f32), np.zeros(n, f32), 0

    def step(self, weight, gradient):
        self.count += 1
        b1, b2 = f32(0.9), f32(0.999)
        rate = f32(float(f32(0.01)) * np.sqrt(1 - float(b2) ** self.count) / (1 - float(b1) ** self.count))
        self.mean = b1 * self.mean + (f32(1) - b1) * gradient
        self.variance = b2 * self.variance + (f32(1) - b2) * (gradient * gradient)
        return weight - rate * self.mean / (np.sqrt(self.variance) + f32(1e-8))


def gradients(rank, round_):
    """Magnitudes from 1e-4 to 1e4: another order of adding gives other bits."""
    random = np.random.default_rng([rank, round_])
    return [(random.normal(size=s) * 10.0 ** random.integers(-4, 5, s)).astype(f32) for s in SHAPES.values()]


def initial():
    random = np.random.default_rng(99)
    return [random.normal(size=s).astype(f32) for s in SHAPES.values()]


def summed(parties, round_):
    """By the one process: party by party, worker by worker."""
    total, rank = None, 0
    for workers in parties:
        party = None
        for _ in range(workers):
            mine = gradients(rank, round_)
            party = mine if party is None else [a + b for a, b in zip(party, mine, strict=True)]
            rank += 1
        total = party if total is None else [a + b for a, b in zip(total, party, strict=True)]
    return total


def alone(parties, optimizer):
    weights = initial()
    states = [optimizer(w.shape) for w in weights]
    for round_ in range(ROUNDS):
        sums = summed(parties, round_)
        weights = [s.step(w, g) for s, w, g in zip(states, weights, sums, strict=True)]
    return weights


def trained(cluster, optimizer, on_server):
    names = list(SHAPES)
    authority = next((w for w in cluster.workers if w.is_master_worker), cluster.workers[0])

    def work(worker):
        weights = initial() if worker is authority else [np.zeros(s, f32) for s in SHAPES.values()]
        worker.init(names, weights)
        worker.pull(names, weights)
        states = [optimizer(w.shape) for w in weights]
        for round_ in range(ROUNDS):
            mine = gradients(worker.global_rank, round_)
            if on_server:
                worker.push_pull(names, mine, weights)
            else:
                worker.push_pull(names, mine)
                weights = [s.step(w, g) for s, w, g in zip(states, weights, mine, strict=True)]
        return weights

    return cluster.run(work)


def bits(arrays):
    return [a.tobytes() for a in arrays]


@pytest.mark.parametrize("optimizer", [Sgd, Adam])
@pytest.mark.parametrize("on_server", [True, False], ids=["server", "worker"])
@pytest.mark.parametrize("central", [0, 2])
def test_two_tiers_equal_one_process(optimizer, on_server, central):
    parties = [3, 1, 2]
    config = {"topology": {"bigarray_bound": 20}, "scheduler": {"fifo": {"part_elements": 37}}, "deterministic": True}
    settings = {"optimizer": optimizer.setting} if on_server else {}
    with LocalCluster(
        parties,
        global_servers=2,
        central_workers=central,
        central_trains=bool(central),
        config=config,
        settings=settings,
    ) as cluster:
        results = trained(cluster, optimizer, on_server)
    assert all(bits(weights) == bits(results[0]) for weights in results)
    assert bits(results[0]) == bits(alone(parties + [central] * bool(central), optimizer))


def test_flat_equals_one_process():
    with LocalCluster(
        [2, 2, 1],
        global_servers=2,
        flat=True,
        settings={"optimizer": Sgd.setting},
        config={"deterministic": True, "topology": {"bigarray_bound": 20}},
    ) as cluster:
        results = trained(cluster, Sgd, True)
    assert all(bits(weights) == bits(results[0]) for weights in results)
    assert bits(results[0]) == bits(alone([1] * 5, Sgd))


def test_the_order_is_seen_in_the_bits():
    """The test above would notice another order."""
    assert bits(alone([3, 1, 2], Sgd)) != bits(alone([2, 1, 3], Sgd))
