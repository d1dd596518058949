"""Weights that come down as differences to what their receivers have: what workers hold is, bit for bit, what the
servers believe that they hold, and nothing that was left out is lost."""

import threading

import numpy as np
import pytest

from geomx.api import Codec, CodecChoice
from geomx.kv import Error
from geomx.testing import LocalCluster

LENGTH, TARGET = 600, 1.0
SPREAD = {"topology": {"bigarray_bound": 300}, "scheduler": {"fifo": {"part_elements": 90}}}


class Largest(Codec):
    """Of the whole tensor's values the tenth with the largest magnitudes; keeps nothing. Carries no parameters."""

    wire_id = "LRGT"
    scope = "tensor"
    lossy = True
    carries = ("gradient", "delta")

    def __init__(self, params):
        self.contents = set()
        self.border = 0.0

    def prepare(self, slot, tensor, values):
        self.contents.add(tensor.content)
        self.border = np.sort(np.abs(values))[-max(len(values) // 10, 1)] if len(values) else 0.0

    def encode(self, slot, part, values):
        return np.where(np.abs(values) >= self.border, values, 0).astype(np.float16).tobytes()

    def decode(self, part, data, out):
        if len(data) != 2 * part.length:
            raise ValueError("wrong size")
        out[:] = np.frombuffer(data, np.float16)


def down(name):
    def choose(key, length, dtype, tier, direction):
        return CodecChoice(name if (tier, direction) == ("wan", "down") else "identity")

    return choose


MIXED = {"name": "mixed", "staleness": 0}


def cluster_of(parties, codec=Largest, sync="fsa", rate=0.1, config=SPREAD, **more):
    settings = {
        "sync": MIXED if sync == "mixed" else {"name": sync},
        "optimizer": {"name": "sgd", "learning_rate": rate},
    }
    return LocalCluster(parties, config=config, codecs={"mine": codec}, choose=down("mine"), settings=settings, **more)


def trained(worker, rounds, dtype="float32", starts_with_pull=True):
    """Weights after each round; gradients that bring every weight towards a value of its own, 1 to 2."""
    targets = np.linspace(TARGET, 2 * TARGET, LENGTH)
    weights, seen = np.zeros(LENGTH, dtype), []
    worker.init("w", weights)
    if starts_with_pull:
        worker.pull("w", weights)
    for _ in range(rounds):
        worker.push("w", ((weights - targets) / worker.num_all_workers).astype(dtype))
        worker.pull("w", weights)
        seen.append(weights.copy())
    return seen


@pytest.mark.parametrize("starts_with_pull", [True, False])
@pytest.mark.parametrize(("servers", "flat"), [(1, False), (2, False), (2, True)])
def test_all_hold_what_the_servers_believe(servers, flat, starts_with_pull):
    with cluster_of([2, 1], global_servers=servers, flat=flat, central_workers=0 if flat else 1) as cluster:
        fresh, last = np.zeros(LENGTH, np.float32), cluster.master or cluster.workers[0]
        # What a leave of the master worker would seal, its push seals; it contributes nothing.
        observed = None if flat else lambda master: (master.init("w", fresh), master.push("w", fresh))
        results = cluster.run(lambda worker: trained(worker, 30, starts_with_pull=starts_with_pull), observed)
        last.pull("w", fresh)
        sent = cluster.counters("global_server")["wan.down_payload_bytes.LRGT"]
    for seen in results[:3]:
        np.testing.assert_array_equal(np.array(seen), np.array(results[0]))
    np.testing.assert_array_equal(results[0][-1], fresh)
    receivers, first = (3 if flat else 2), 1 if starts_with_pull else 0
    assert sent >= 2 * LENGTH * receivers * (29 + first)


def test_what_is_left_out_arrives_later():
    with cluster_of([1, 1]) as cluster:
        seen, other = cluster.run(lambda worker: trained(worker, 150))
    np.testing.assert_array_equal(seen, other)
    assert np.count_nonzero(seen[0]) <= LENGTH // 10 + 1
    np.testing.assert_allclose(seen[-1], np.linspace(TARGET, 2 * TARGET, LENGTH), rtol=1e-2)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("servers", [1, 2])
def test_in_mixed_sync_each_member_has_a_base_of_its_own(flat, servers):
    """One worker is far ahead; both end near the same values, and a pull gives each what it has."""
    ahead = threading.Event()

    def work(worker):
        if worker.global_rank == 1:
            ahead.wait(20)
        seen = trained(worker, 100)
        ahead.set()
        worker.barrier(world=True)
        rest = trained_on(worker, seen[-1], 60)
        again = np.zeros(LENGTH, np.float32)
        worker.pull("w", again)
        return rest, again

    def trained_on(worker, weights, rounds):
        weights = weights.copy()
        for _ in range(rounds):
            worker.push("w", ((weights - np.linspace(TARGET, 2 * TARGET, LENGTH)) / 2).astype(np.float32))
            worker.pull("w", weights)
        return weights

    with cluster_of([1, 1], sync="mixed", flat=flat, global_servers=servers) as cluster:
        for held, again in cluster.run(work):
            np.testing.assert_array_equal(held, again)
            np.testing.assert_allclose(held, np.linspace(TARGET, 2 * TARGET, LENGTH), rtol=2e-2)


def test_the_first_value_in_mixed_sync_is_whole():
    with cluster_of([1, 1], sync="mixed") as cluster:
        for seen in cluster.run(lambda worker: trained(worker, 1)):
            assert np.count_nonzero(seen[0]) == LENGTH


def test_halves_have_a_base_in_float32():
    class Any(Largest):
        dtypes = ("float16",)

    with cluster_of([1, 1], codec=Any) as cluster:
        seen, other = cluster.run(lambda worker: trained(worker, 100, "float16"))
    np.testing.assert_array_equal(seen, other)
    np.testing.assert_allclose(seen[-1], np.linspace(TARGET, 2 * TARGET, LENGTH), rtol=2e-2)


def test_a_codec_hears_what_it_is_given():
    made = []

    class Listening(Largest):
        def __init__(self, params):
            super().__init__(params)
            made.append(self)

    with cluster_of([1], codec=Listening) as cluster:
        cluster.run(lambda worker: trained(worker, 3))
    assert set().union(*(codec.contents for codec in made)) == {"delta"}


def test_what_carries_gradients_alone_leaves_weights_as_they_are():
    class Gradients(Largest):
        carries = ("gradient",)

    with cluster_of([1, 1], codec=Gradients, rate=1.0) as cluster:
        seen, _ = cluster.run(lambda worker: trained(worker, 1))
        counters = cluster.counters("global_server")
    np.testing.assert_allclose(seen[0], np.linspace(TARGET, 2 * TARGET, LENGTH), rtol=1e-6)
    assert "wan.down_payload_bytes.LRGT" not in counters


def test_an_unknown_content_is_refused_in_a_sentence():
    class Odd(Largest):
        carries = ("weights",)

    with pytest.raises(Error, match='carries: gradient, parameter and delta are known, "weights" given'):  # noqa: SIM117
        with cluster_of([1], codec=Odd) as cluster:
            cluster.run(lambda worker: trained(worker, 1))


@pytest.mark.parametrize("sync", ["fsa", "mixed"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "dcasgd"])
def test_bsc_both_ways_with_an_optimizer_on_the_servers(sync, optimizer):
    pytest.importorskip("geomx_bsc", reason="the plugin isn't installed: pip install plugins/bsc")
    config = {**SPREAD, "compression": {"name": "bsc", "ratio": 0.1, "size_lower_bound": 10}}
    rates = {"sgd": 0.05, "adam": 0.05, "dcasgd": 0.05}
    settings = {"sync": {"name": sync}, "optimizer": {"name": optimizer, "learning_rate": rates[optimizer]}}
    rounds = 150
    with LocalCluster([1, 1], global_servers=2, config=config, settings=settings) as cluster:
        results = cluster.run(lambda worker: trained(worker, rounds))
        sent = cluster.counters("global_server")["wan.down_payload_bytes.BSC1"]
    assert sent < 2 * rounds * 0.1 * LENGTH * 6 + 2 * rounds * 8 * 10
    for seen in results:
        error = np.abs(seen[-1] - np.linspace(TARGET, 2 * TARGET, LENGTH))
        assert error.max() < 0.2
    if sync == "fsa":
        np.testing.assert_array_equal(np.array(results[0]), np.array(results[1]))
