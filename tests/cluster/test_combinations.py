"""Every topology with every compression, transport, scheduler and place of the optimizer: it trains on real data and
gets as good as without any technique, and all workers hold the same weights; or it is refused before anything starts,
with a sentence that names a combination which works. `geomx.combinations` lists them, from what plugins declare."""

import json
from pathlib import Path

import numpy as np
import pytest

from geomx import combinations, plugins
from geomx.config import load
from geomx.testing import LocalCluster
from geomx.train import Loop, weights_hash

PAGE = Path(__file__).parents[2] / "docs" / "combinations.md"
ROUNDS, ACCURACY = 60, 0.9
ADAM = {"name": "adam", "learning_rate": 0.01}
SPARSE = {"ratio": 0.2}  # so few rounds would leave most of what 1 % leaves out waiting


def configured(choice):
    """Plain data of a run: two parties of a worker; digits, small tensors and several servers' shards included."""
    groups = choice.groups()
    if groups["compression"]["name"] in ("bsc", "mpq"):
        groups["compression"] |= SPARSE
    groups["topology"] |= {"bigarray_bound": 1000}
    groups["task"] = {"name": "digits", "max_rounds": ROUNDS, "epochs": 100, "eval_every": 0}
    groups["framework"] = {"name": "numpy"}
    return groups


def train(worker, config, on_server):
    task = plugins.target(config.task)(config.task)
    adapter = plugins.target(config.framework)(config.framework)
    model = adapter.model(task, 1, None if on_server else ADAM)
    for name, weight in zip(model.names, model.weights, strict=True):
        worker.init(name, weight)
    for name, weight in zip(model.names, model.weights, strict=True):
        worker.pull(name, weight)
    loop = Loop(worker, model, task, lambda *_: None, on_server, 1 / worker.num_all_workers, eval_every=0)
    for batch in task.batches(worker.global_rank, worker.num_all_workers, 1):
        loop.step(batch)
    loop._finish()
    return model.evaluate(task.data.test_x, task.data.test_y)[1], weights_hash(model.values())


@pytest.mark.parametrize("choice", list(combinations.of_techniques()), ids=str)
def test_a_combination(choice):
    if reason := choice.refusal():
        assert "; use " in reason, reason
        return
    groups = configured(choice)
    config = load(groups)
    on_server = config.sync.optimizer.where == "server"
    settings = {"optimizer": ADAM} if on_server else {}
    several = 2 if choice.topology == "multigps" else 1
    with LocalCluster(
        [1, 1], global_servers=several, flat=choice.topology == "flat", config=groups, settings=settings
    ) as cluster:
        results = cluster.run(lambda worker: train(worker, config, on_server))
        told = cluster.agreed["global_server0"]
    agreed = {name: json.loads(told[name]) for name in ("compression", "transport", "scheduler")}
    accuracies, hashes = zip(*results, strict=True)
    assert agreed["compression"]["name"] == choice.compression
    assert agreed["transport"]["name"] == choice.transport
    assert set(agreed["scheduler"]) == set(choice.scheduler)
    assert len(set(hashes)) == 1
    assert np.min(accuracies) >= ACCURACY


def test_the_page_says_what_the_plugins_declare():
    assert PAGE.read_text() == combinations.page(), "python -m geomx.combinations >docs/combinations.md"


def test_all_techniques_are_there_and_few_refused():
    found = list(combinations.of_techniques())
    assert {c.topology for c in found} == {"hips", "flat", "multigps"}
    assert {c.compression for c in found} == {"none", "bsc", "fp16", "mpq"}
    assert {c.transport for c in found} == {"zmq", "dgt"}
    assert {c.scheduler for c in found} == {("fifo",), ("p3",), ("tsengine",), ("p3", "tsengine")}
    assert sum(bool(c.refusal()) for c in found) <= len(found) / 10
