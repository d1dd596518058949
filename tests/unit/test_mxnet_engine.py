"""MXNet's front door: its engine's order, oneDNN's layouts, failures, its Trainer."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from fake_core import Cluster
from test_kv import LAN, together

from geomx.errors import ConfigError
from geomx.spec import NodeSpec

try:
    import geomx.mxnet as front
except ConfigError as e:
    pytest.skip(f"MXNet is missing: {e}", allow_module_level=True)

from geomx import updaters
from geomx.kv import Error

mx = front.mx


def stores(workers=2, observer=False):
    cluster = Cluster(workers, observer)
    specs = [NodeSpec(role="worker", party="a", rank=i, lan=LAN, is_master=i == workers)
             for i in range(workers + observer)]  # fmt: skip
    return cluster, [front.MxStore(node, spec) for node, spec in zip(cluster.nodes, specs)]


def test_push_and_pull_return_at_once_and_readers_wait_for_their_array():
    cluster, (a, b) = stores()
    cluster.goes_on.clear()
    grads = [mx.nd.ones((3,)), mx.nd.ones((3,)) * 2]
    outs = [mx.nd.zeros((3,)), mx.nd.zeros((3,))]
    for store, grad, out in zip((a, b), grads, outs):
        store.push(0, grad)
        store.pull(0, out)
        grad[:] = -1  # MXNet's own dependency: waits until the push has read it
    cluster.goes_on.set()  # had anything waited, this would not be reached
    assert [o.asnumpy().tolist() for o in outs] == [[3, 3, 3]] * 2
    assert [g.asnumpy().tolist() for g in grads] == [[-1, -1, -1]] * 2


def test_pull_into_the_pushed_array_and_into_another_mean_the_same_round():
    _, (a,) = stores(1)
    grad, weight = mx.nd.array([1.0, 2.0]), mx.nd.zeros((2,))
    for round_ in range(1, 20):
        grad[:] = round_
        a.push(0, grad, priority=0)
        a.pull(0, grad, priority=0)
        a.pull(0, weight)
        grad += 0.5
        assert grad.asnumpy().tolist() == [round_ + 0.5] * 2
        assert weight.asnumpy().tolist() == [round_] * 2


def test_computing_that_depends_on_a_pull_is_queued_behind_it():
    cluster, (a, b) = stores()
    cluster.goes_on.clear()
    x = mx.nd.ones((4,))
    a.push_pull("k", x)
    y = (x * 10).sum()
    b.push_pull("k", mx.nd.ones((4,)))
    cluster.goes_on.set()
    assert y.asscalar() == 80


def test_lists_halves_and_several_devices():
    _, (a,) = stores(1)
    one, two = mx.nd.ones((2, 2), dtype="float16"), mx.nd.ones((2, 2), dtype="float16") * 3
    outs = [mx.nd.zeros((2, 2), dtype="float16") for _ in range(2)]
    a.pushpull("w", [one, two], outs)
    assert [o.asnumpy().tolist() for o in outs] == [[[4, 4], [4, 4]]] * 2
    assert outs[0].dtype == np.float16
    values = [mx.nd.ones((1,)), mx.nd.ones((2,)) * 5]
    a.push_pull([1, 2], values, priority=[0, -1])
    assert [v.asnumpy().tolist() for v in values] == [[1], [5, 5]]


def test_weights_that_onednn_holds_in_blocked_layout_are_pulled_and_pushed_right():
    _, (a,) = stores(1)
    net = mx.gluon.nn.Conv2D(16, 3, in_channels=1)
    net.initialize()
    weight = net.weight.data()
    value = np.arange(16 * 9, dtype=np.float32).reshape(16, 1, 3, 3)
    for round_ in range(1, 4):
        net(mx.nd.ones((32, 1, 16, 16))).wait_to_read()  # without autograd: oneDNN reorders the weights in place
        a.push(0, mx.nd.array(value) * round_)
        a.pull(0, weight)
        assert (weight.asnumpy() == value * round_).all()
        net(mx.nd.ones((32, 1, 16, 16))).wait_to_read()
        a.push(1, weight)
        out = mx.nd.zeros(value.shape)
        a.pull(1, out)
        assert (out.asnumpy() == value * round_).all()


def test_pulls_inside_record_leave_autograd_alone():
    _, (a,) = stores(1)
    x = mx.nd.ones((2, 2))
    x.attach_grad()
    with mx.autograd.record():
        y = (x * x).sum()
        a.push("g", mx.nd.ones((2, 2, 1)))
        a.pull("g", mx.nd.zeros((2, 2, 1)))
    y.backward()
    assert x.grad.asnumpy().tolist() == [[2, 2], [2, 2]]


def test_a_failure_is_raised_where_the_array_is_waited_for_and_by_every_later_call():
    cluster, (a, b) = stores()
    x = mx.nd.ones((4,))
    a.push("k", x)
    a.pull("k", x)
    threading.Timer(0.05, cluster.fail, ("local server of party b died: heartbeats stopped",)).start()
    with pytest.raises(Error, match="^local server of party b died: heartbeats stopped$"):
        x.wait_to_read()
    for call in (lambda: a.push("k", x), lambda: a.pull("k", x), a.barrier, a.leave):
        with pytest.raises(Error, match="^local server of party b died"):
            call()


def test_a_pull_with_another_shape_is_an_error_not_garbage():
    _, (a,) = stores(1)
    a.init("k", mx.nd.ones((4,)))
    out = mx.nd.zeros((5,))
    a.pull("k", out)
    with pytest.raises(Error, match=r"key 'k': \(5,\) float32 to pull into, it is \(4,\) float32"):
        out.asnumpy()


def test_misuse_is_a_sentence():
    _, (a,) = stores(1)
    with pytest.raises(TypeError, match="key '#0': an array of MXNet is needed, ndarray given"):
        a.push(0, np.zeros(2))
    with pytest.raises(Error, match="key '#0': a row_sparse array given, only dense ones"):
        a.push(0, mx.nd.sparse.zeros("row_sparse", (2, 2)))
    with pytest.raises(Error, match="row_sparse_pull isn't offered"):
        a.row_sparse_pull(0, None)


def test_many_operations_at_once():
    _, (a, b) = stores()
    keys = list(range(200))
    values = [[mx.nd.full((i % 7 + 1,), store.rank + 1) for i in keys] for store in (a, b)]
    for _ in range(3):
        for store, arrays in zip((a, b), values):
            store.push_pull(keys, arrays, priority=[-k for k in keys])
    mx.nd.waitall()
    assert all((v.asnumpy() == 12).all() for arrays in values for v in arrays)


@pytest.mark.parametrize("on_store", [True, False])
def test_gluon_trainer_trains_and_workers_end_with_the_same_weights(on_store):
    cluster, both = stores()
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(64, 4)).astype(np.float32), np.array([[1.0, -2, 3, 0.5]], np.float32)
    y = x @ w.T

    def work(store):
        net = mx.gluon.nn.Dense(1, in_units=4)
        net.initialize(mx.init.Constant(0.1 * (store.rank + 1)))
        trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=store,
                                   update_on_kvstore=on_store)  # fmt: skip
        mine = slice(store.rank * 32, store.rank * 32 + 32)
        for _ in range(60):
            with mx.autograd.record():
                loss = mx.gluon.loss.L2Loss()(net(mx.nd.array(x[mine])), mx.nd.array(y[mine]))
            loss.backward()
            trainer.step(64)
        return net.weight.data().asnumpy(), loss.mean().asscalar()

    (wa, la), (wb, lb) = together(*[lambda s=s: work(s) for s in both])
    assert la < 0.01 and lb < 0.01
    if on_store:
        assert cluster.configured["optimizer"].startswith('{"learning_rate":0.1,"momentum":0.0,"name":"sgd"')
    assert np.array_equal(wa, wb)


@pytest.mark.parametrize(
    ("optimizer", "params"),
    [
        (lambda: mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, wd=0.01),
         {"name": "sgd", "learning_rate": 0.1, "wd": 0.01, "rescale_grad": 1.0, "momentum": 0.9}),
        (lambda: mx.optimizer.Adam(learning_rate=0.01, clip_gradient=2),
         {"name": "adam", "learning_rate": 0.01, "wd": 0.0, "rescale_grad": 1.0, "clip_gradient": 2.0, "beta1": 0.9,
          "beta2": 0.999, "epsilon": 1e-8}),
        (lambda: mx.optimizer.DCASGD(momentum=0, lamda=0.04),
         {"name": "dcasgd", "learning_rate": 0.01, "wd": 0.0, "rescale_grad": 1.0, "momentum": 0.0, "lamda": 0.04}),
        (lambda: mx.optimizer.RMSProp(learning_rate=0.5, centered=True),
         {"name": "rmsprop", "learning_rate": 0.5, "wd": 0.0, "rescale_grad": 1.0, "gamma1": 0.9, "gamma2": 0.9,
          "epsilon": 1e-8, "centered": True}),
    ],
)  # fmt: skip
def test_an_optimizer_travels_as_name_and_parameters(optimizer, params):
    made = optimizer()
    if params["name"] == "dcasgd":
        params["learning_rate"] = made.learning_rate
    assert updaters.params_of(made) == params


def test_optimizers_that_are_more_than_name_and_parameters_are_refused():
    scheduled = mx.optimizer.SGD(lr_scheduler=mx.lr_scheduler.FactorScheduler(10))
    with pytest.raises(ConfigError, match="optimizer sgd: has a learning-rate scheduler"):
        updaters.params_of(scheduled)
    multiplied = mx.optimizer.SGD()
    multiplied.set_lr_mult({"fc_bias": 0.1})
    with pytest.raises(ConfigError, match="optimizer sgd: lr_mult of fc_bias isn't 1"):
        updaters.params_of(multiplied)


def test_an_updater_by_name_is_mxnets_own():
    update = updaters.make('{"name":"adagrad","learning_rate":0.5}')
    mine, theirs = np.ones(3, np.float32), mx.nd.ones((3,))
    own = mx.optimizer.AdaGrad(learning_rate=0.5)
    state = own.create_state(0, theirs)
    for step in range(3):
        gradient = np.full(3, step + 1, np.float32)
        update(7, 0, gradient, mine)
        own.update(0, theirs, mx.nd.array(gradient), state)
    assert np.allclose(mine, theirs.asnumpy()) and mine[0] < 1
    with pytest.raises(ConfigError, match="optimizer nosuch: MXNet can't make it"):
        updaters.make('{"name":"nosuch"}')


def test_mx_kv_create_gives_this_store(monkeypatch):
    cluster = Cluster(1)
    spec = NodeSpec(role="worker", party="a", lan=LAN)
    monkeypatch.setattr(front.connect, "joined", lambda make, kind: make(cluster.nodes[0], spec, kind))
    kv = mx.kv.create("dist_sync")
    assert isinstance(kv, front.MxStore) and isinstance(kv, mx.kvstore.KVStoreBase) and kv.type == "dist_sync"
    assert mx.kv.create("dist_device_sync") is kv
    with pytest.raises(Error, match="already has a store of type dist_sync"):
        mx.kv.create("dist_async")
    kv.close()
    assert cluster.left == {0: {}} and cluster.nodes[0].closed


@pytest.mark.parametrize("role", ["server", "scheduler"])
def test_importing_starts_none_of_mxnets_roles(role):
    path = os.pathsep.join(p for p in sys.path if p)
    environ = {**os.environ, "PYTHONPATH": path, "DMLC_ROLE": role, "DMLC_PS_ROOT_URI": "127.0.0.1",
               "DMLC_PS_ROOT_PORT": "1", "DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": "1"}  # fmt: skip
    script = "import conftest, geomx.mxnet, os; print(os.environ['DMLC_ROLE'])"
    ran = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=150)
    assert (ran.returncode, ran.stdout) == (0, f"{role}\n"), ran.stderr
