"""The accuracy benchmark's rounds without a network are the rounds of a cluster."""

import numpy as np
import pytest

from geomx.bench import accuracy
from geomx.testing import LocalCluster

for plugin in ("bsc", "fp16", "mpq"):
    pytest.importorskip(f"geomx_{plugin}", reason=f"the plugin isn't installed: pip install plugins/{plugin}")

ROUNDS = 4


@pytest.mark.parametrize("technique", ["bsc_8", "fp16", "mpq"])
@pytest.mark.parametrize("where", ["worker", "server"])
def test_its_rounds_are_a_clusters(technique, where, monkeypatch):
    sgd = {"name": "sgd", "learning_rate": 0.1}
    monkeypatch.setitem(accuracy.OPTIMIZERS, "sgd", sgd)
    setting = accuracy.Setting({"name": "digits"}, 2, "iid", where, "sgd")
    compression = accuracy.TECHNIQUES[technique]
    alone = accuracy.Training(setting, compression, seed=3)
    batches = [list(alone._task.batches(rank, 2, 3))[:ROUNDS] for rank in range(2)]
    given = {"optimizer": sgd} if where == "server" else {}
    with LocalCluster([1, 1], config={"compression": compression}, settings=given) as cluster:

        def work(worker):
            model = accuracy.Training(setting, compression, seed=3).model
            keys = list(range(len(model.weights)))
            worker.init(keys, model.weights)
            worker.pull(keys, model.weights)
            for batch in batches[worker.global_rank]:
                model.backward(batch.x, batch.y, 0.5)
                worker.push(keys, model.gradients)
                worker.pull(keys, model.weights if where == "server" else model.gradients)
                if where == "worker":
                    model.update()
            return model.weights

        got, other = cluster.run(work)
    for number in range(ROUNDS):
        alone.round([mine[number] for mine in batches])
    for ours, theirs, expected in zip(got, other, alone.model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_two_trainings_of_a_seed_are_the_same_and_compression_is_felt():
    setting = accuracy.Setting({"name": "digits", "epochs": 2}, 2, "iid", "worker", "adam")
    plain = accuracy.results(setting, {"name": "none"}, [1, 2])
    assert plain == accuracy.results(setting, {"name": "none"}, [1, 2])
    sparse = accuracy.results(setting, {"name": "bsc"}, [1, 2])
    assert all(a > b for a, b in zip(sparse.loss, plain.loss, strict=True))


def test_differences_are_told_by_mean_and_spread():
    assert accuracy.differences([1.0, 4.0], [0.0, 1.0], 1) == "+2.0 (sd 1.4, +1.0 to +3.0)"
