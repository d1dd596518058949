"""The training loop over a cluster in this process."""

import threading

import numpy as np
import pytest
from fake_core import Cluster
from test_kv import LAN, together

from geomx import train as loop_of_a_worker
from geomx.errors import ConfigError
from geomx.frameworks import numpy as framework
from geomx.kv import Error
from geomx.spec import NodeSpec
from geomx.tasks import Batch, Data
from geomx.train import Loop, run_worker, weights_hash


def config(framework="numpy", where="server", optimizer=None, **task):
    return {
        "framework": {"name": framework},
        "task": {"name": "digits", "epochs": 6, "eval_every": 20, **task},
        "sync": {"name": "fsa", "optimizer": {"where": where, "learning_rate": 0.01, **(optimizer or {})}},
    }


def train(workers=4, observer=False, configs=None, **options):
    cluster = Cluster(workers, observer)
    specs = [
        NodeSpec(role="worker", party="a", rank=i, lan=LAN, is_master=i == workers, seed=i + 1 if i == workers else 1,
                 config=configs[i] if configs else config(**options))
        for i in range(workers + observer)
    ]  # fmt: skip
    rows = [[] for _ in specs]
    emits = [lambda kind, row, to=to: to.append(row) for to in rows]
    results = together(*[lambda s=s, n=n, e=e: run_worker(s, n, e) for s, n, e in zip(specs, cluster.nodes, emits)])
    return cluster, results, rows


@pytest.mark.parametrize("where", ["server", "worker"])
@pytest.mark.parametrize("split", ["iid", "class"])
def test_workers_learn_together_and_end_with_the_same_weights(where, split):
    cluster, results, _ = train(where=where, split=split)
    assert results[0]["accuracy"] > 0.93
    assert len({r["weights_hash"] for r in results}) == 1
    assert [r["rounds"] for r in results] == [72] * 4 and results[0]["samples"] == 6 * 359
    assert set(cluster.left) == {0, 1, 2, 3}
    assert cluster.configured.get("optimizer", "none").startswith('{"beta1"' if where == "server" else "none")


def test_alone_a_worker_with_its_own_classes_stays_below_0_6():
    cluster = Cluster(1)
    spec = NodeSpec(role="worker", party="a", lan=LAN, config=config(split="class"), world=4, world_rank=0)
    assert run_worker(spec, cluster.nodes[0], lambda kind, row: None)["accuracy"] < 0.6


def test_the_mean_gradient_counts_whatever_the_number_of_workers():
    """sgd on the server: 1 worker and 4 workers with the same samples make the same step."""
    weights = []
    for workers in (1, 4):
        cluster, _, _ = train(workers=workers, optimizer={"name": "sgd"}, epochs=1, max_rounds=1, batch_size=2000)
        weights.append(np.concatenate([k.values[-1].ravel() for k in cluster.keys.values()]))
    assert np.abs(weights[0] - weights[1]).max() < 0.01 * np.abs(weights[0]).max()


def test_rows_say_what_the_contract_names():
    _, _, rows = train(workers=2, epochs=4)
    first = rows[0][0]
    assert set(first) == {"step", "time", "loss", "samples", "compute_s", "wait_s"}
    assert [r["step"] for r in rows[0]] == list(range(1, len(rows[0]) + 1))
    assert [r["step"] for r in rows[0] if "accuracy" in r] == [20, 40, 60, 80]
    assert not any("accuracy" in r for r in rows[1])
    assert rows[0][-1]["loss"] < first["loss"] and min(r["wait_s"] for r in rows[0]) >= 0


def test_a_master_worker_gives_the_initial_weights_and_doesnt_train():
    cluster, results, rows = train(workers=2, observer=True, epochs=1, max_rounds=1)
    assert results[2] == {"weights_hash": "", "accuracy": None, "loss": 0.0, "rounds": 0, "samples": 0} and not rows[2]
    master_model = framework.Mlp(Data(*[np.zeros((1, 1, 8, 8), np.float32), np.zeros(1, np.int32)] * 2, 10), 3, None)
    assert np.array_equal(cluster.keys["fc0.weight"].values[0], master_model.weights[0])


def test_uneven_numbers_of_batches_end():
    _, results, _ = train(workers=3, configs=[config(max_rounds=n) for n in (3, 10, 13)])
    assert [r["rounds"] for r in results] == [3, 10, 13]


def test_a_failed_run_raises_its_sentence():
    cluster = Cluster(2)
    threading.Timer(0.2, cluster.fail, ("worker 1 of party a died",)).start()
    with pytest.raises(Error, match="worker 1 of party a died"):
        run_worker(NodeSpec(role="worker", party="a", rank=0, lan=LAN, config=config()), cluster.nodes[0], print)


def test_optimizers_that_numpy_lacks_are_refused():
    with pytest.raises(ConfigError, match="sync.optimizer.name: 'dcasgd' given, on workers framework=numpy has"):
        train(workers=1, where="worker", optimizer={"name": "dcasgd"})


@pytest.mark.parametrize("fw", ["numpy", "mxnet"])
def test_synthetic_tensors_are_synchronised(fw):
    if fw == "mxnet":
        _need_mxnet()
    task = {"name": "synthetic", "shapes": "resnet50", "max_rounds": 2, "compute_ms": 10}
    given = {"framework": {"name": fw}, "task": task, "sync": {"name": "fsa", "optimizer": {"name": "sgd"}}}
    cluster, results, rows = train(workers=1, configs=[given])
    assert len(cluster.keys) == 161 and results[0]["accuracy"] is None and results[0]["samples"] == 64
    assert rows[0][1]["compute_s"] >= 0.01


def _need_mxnet():
    try:
        import geomx.mxnet  # noqa: F401
    except ConfigError as e:
        pytest.skip(f"MXNet is missing: {e}")


@pytest.mark.parametrize("where", ["server", "worker"])
def test_the_cnn_learns_from_parts_by_class(where):
    _need_mxnet()
    _, results, rows = train(framework="mxnet", where=where, split="class", epochs=8, eval_every=40,
                             optimizer={"learning_rate": 0.003})  # fmt: skip
    assert results[0]["accuracy"] > 0.95, [r["accuracy"] for r in rows[0] if "accuracy" in r]
    assert len({r["weights_hash"] for r in results}) == 1


def test_gradients_of_the_reference_model_are_right():
    rng = np.random.default_rng(0)
    x, y = rng.random((5, 1, 4, 4), np.float32), rng.integers(0, 3, 5).astype(np.int32)
    model = framework.Mlp(Data(x, y, x, y, 3), 1, None)
    model.backward(x, y, 2.0)
    for weight, gradient in zip(model.weights, model.gradients):
        i = tuple(s // 2 for s in weight.shape)
        eps, kept = np.float32(1e-2), weight[i]
        losses = []
        for moved in (kept + eps, kept - eps):
            weight[i] = moved
            losses.append(model.evaluate(x, y)[0])
        weight[i] = kept
        assert abs((losses[0] - losses[1]) / (2 * eps) * 2 - gradient[i]) < 2e-3


def test_the_hash_depends_on_values_and_order():
    a, b = np.ones(2, np.float32), np.zeros(2, np.float32)
    assert weights_hash([a, b]) != weights_hash([b, a]) == weights_hash([b.copy(), a.copy()])


class Rounds:
    """A store that says what was begun and waited for, in order."""

    waits_by_itself = False
    trains, global_rank = True, 1
    gradients_ready_at = values_ready_at = step_began_at = 0.0

    def __init__(self):
        self.events = []

    def start_round(self, key, value, out, priority):
        self.events.append(("begin", key, priority))
        return lambda: self.events.append(("wait", key))

    def report(self, name, value):
        pass


def three_layers(overlap):
    task = type("Task", (), {"data": None, "tensors": [(f"w{i}", (2,)) for i in range(3)], "compute_s": 0.0})()
    store, model = Rounds(), framework.Tensors(task, 1, framework._no_step)
    loop = Loop(store, model, task, lambda kind, row: None, on_server=True, scale=1.0, eval_every=0, overlap=overlap)
    loop.step(Batch(None, None, 1))
    first, store.events = store.events, []
    need = model.watch.before
    model.watch.before = lambda layer: (need(layer), store.events.append(("forward", layer)))
    loop.step(Batch(None, None, 1))
    return first, store.events


def test_a_round_begins_with_its_gradient_and_is_waited_for_by_its_layer():
    begun = [("begin", "w2", -2), ("begin", "w1", -1), ("begin", "w0", 0)]
    first, second = three_layers("all")
    assert first == begun
    assert second == [("wait", "w0"), ("forward", 0), ("wait", "w1"), ("forward", 1), ("wait", "w2"), ("forward", 2),
                      *begun]  # fmt: skip


@pytest.mark.parametrize("overlap", ["backward", "none"])
def test_without_overlap_all_rounds_are_over_before_the_next_pass(overlap):
    first, second = three_layers(overlap)
    assert first[3:] == [("wait", "w0"), ("wait", "w1"), ("wait", "w2")]
    assert second[:3] == [("forward", 0), ("forward", 1), ("forward", 2)]


class Clock:
    """In the place of the module `time`: nothing passes but what is slept."""

    def __init__(self):
        self.now_s = 100.0

    def perf_counter(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(loop_of_a_worker, "time", made)
    monkeypatch.setattr(framework, "time", made)
    return made


def test_what_the_engine_waits_for_in_the_forward_pass_is_no_computing(clock):
    """A store whose engine holds the pass back until values that were asked for before have come, as MXNet's does."""

    class Late(Rounds):
        waits_by_itself = True

        def start_round(self, key, value, out, priority):
            if key == "w0":
                self.gradients_ready_at = clock.perf_counter()
            return lambda: None

    task = type("Task", (), {"data": None, "tensors": [("w0", (2,))], "compute_s": 0.0})()
    store, rows = Late(), []
    model = framework.Tensors(task, 1, framework._no_step)

    def held(x, y, scale):
        clock.sleep(0.3)
        store.values_ready_at = clock.perf_counter()
        clock.sleep(0.05)

    model.backward = held
    loop = Loop(store, model, task, lambda kind, row: rows.append(row), on_server=True, scale=1.0, eval_every=0)
    loop.step(Batch(None, None, 1))
    assert [rows[0][of] for of in ("wait_s", "compute_s", "time")] == pytest.approx([0.3, 0.05, 0.35])


def test_waits_between_the_passes_count_once(clock):
    task = type("Task", (), {"data": None, "tensors": [("w0", (2,))], "compute_s": 0.1})()
    rows = []

    class Slow(Rounds):
        def start_round(self, key, value, out, priority):
            self.gradients_ready_at = clock.perf_counter()
            return lambda: clock.sleep(0.2)

    model = framework.Tensors(task, 1, framework._no_step)
    loop = Loop(Slow(), model, task, lambda kind, row: rows.append(row), on_server=True, scale=1.0, eval_every=0,
                overlap="none")  # fmt: skip
    loop.step(Batch(None, None, 1))
    assert [rows[0][of] for of in ("wait_s", "compute_s", "time")] == pytest.approx([0.2, 0.1, 0.3])
