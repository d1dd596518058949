"""framework=mxnet: gluon models. Synchronising overlaps with computing as MXNet's engine finds it possible."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.errors import ConfigError
from geomx.frameworks import Watch
from geomx.frameworks.numpy_text import HIDDEN_UNITS, SYMBOL_UNITS
from geomx.kv import Store
from geomx.mxnet import MxStore, mx
from geomx.spec import NodeSpec
from geomx.tasks import SEED_HIDDEN, Data, Task

SMALL_IMAGE = 20  # pixels; below this, convolutions pad their input
EVALUATE_SAMPLES = 500  # at once


class MxnetAdapter:
    def __init__(self, context: str) -> None:
        self._context = mx.gpu() if context == "gpu" else mx.cpu()
        if context == "gpu" and mx.context.num_gpus() == 0:
            raise ConfigError("framework.context: gpu given, MXNet finds none here; allowed is cpu")

    def store(self, node: Any, spec: NodeSpec) -> Store:
        return MxStore(node, spec)

    def model(self, task: Task, seed: int, optimizer: Mapping[str, Any] | None) -> "Net | Tensors":
        mx.random.seed(seed)
        updater = None if optimizer is None else _updater(optimizer)
        if task.data is None:
            return Tensors(task, seed, updater, self._context)
        return Net(task.data, task.hidden, updater, self._context)


def make(options: Any) -> MxnetAdapter:
    """options: `geomx.config.task.Mxnet`. Raises ConfigError where MXNet or its GPU is missing."""
    return MxnetAdapter(options.context)


class _Arrays:
    """What both models share: tensors by name and the worker's own optimizer."""

    names: list[str]
    weights: list[Any]
    gradients: list[Any]

    def __init__(self, updater: Any) -> None:
        self.watch = Watch()
        self._updater = updater

    def update(self, layer: int | None = None) -> None:
        for i in range(len(self.names)) if layer is None else [layer]:
            self._updater(i, self.gradients[i], self.weights[i])

    def ready(self) -> None:
        first = self.gradients[0] if self._updater else self.weights[0]
        first.wait_to_read()

    def values(self) -> list[NDArray[np.float32]]:
        return [w.asnumpy() for w in self.weights]


class Net(_Arrays):
    """For images the seed's network, of any size; for text a table of symbols and two dense layers."""

    def __init__(self, data: Data, hidden: tuple[int, ...], updater: Any, context: Any) -> None:
        super().__init__(updater)
        self._context = context
        if data.is_text:
            self._net = text_network(data)
        else:
            self._net = network(data.num_classes, data.train_x.shape[2], hidden)
        self._net.initialize(mx.init.Xavier(), ctx=context)
        self._net(self._array(data.train_x[:1]))  # draws the weights
        self._net.hybridize()
        self._entropy = mx.gluon.loss.SoftmaxCrossEntropyLoss()
        params = list(self._net.collect_params().values())
        self.names = [p.name for p in params]
        self.weights = [p.data() for p in params]
        self.gradients = [p.grad() for p in params]

    def backward(self, x: Any, y: Any, scale: float) -> None:
        with mx.autograd.record():
            self._losses = self._entropy(self._net(self._array(x)), self._array(y))
        self._losses.backward(mx.nd.full(self._losses.shape, scale / len(y), ctx=self._context))

    def loss(self) -> float:
        return float(self._losses.mean().asscalar())

    def evaluate(self, x: Any, y: Any) -> tuple[float, float]:
        loss, right = 0.0, 0
        for start in range(0, len(y), EVALUATE_SAMPLES):
            part = slice(start, start + EVALUATE_SAMPLES)
            out = self._net(self._array(x[part]))
            loss += float(self._entropy(out, self._array(y[part])).sum().asscalar())
            right += int((out.asnumpy().argmax(1) == y[part]).sum())
        return loss / len(y), right / len(y)

    def _array(self, values: Any) -> Any:
        return mx.nd.array(values, ctx=self._context, dtype=values.dtype)


class Tensors(_Arrays):
    """The tensors of a task without data. Computing is waiting: a third of the time forward, layer by layer as their
    weights come in, the rest backward."""

    def __init__(self, task: Task, seed: int, updater: Any, context: Any) -> None:
        super().__init__(updater)
        rng = np.random.default_rng(seed)
        self.names = [name for name, _ in task.tensors]
        self.weights = [mx.nd.zeros(shape, ctx=context) for _, shape in task.tensors]
        self.gradients = [mx.nd.array(rng.standard_normal(shape, np.float32), ctx=context) for _, shape in task.tensors]
        self._layer_s = task.compute_s / len(self.names)

    def backward(self, x: Any, y: Any, scale: float) -> None:
        for layer in range(len(self.names)):
            self.watch.before(layer)
            time.sleep(self._layer_s / 3)
        for layer in reversed(range(len(self.names))):
            time.sleep(self._layer_s * 2 / 3)
            if self._updater:  # gradients hold the last round's sums, which must not grow
                self.gradients[layer] *= scale
            self.watch.made(layer)

    def loss(self) -> float:
        return 0.0

    def evaluate(self, x: Any, y: Any) -> tuple[float, float]:
        raise ConfigError("task synthetic: there is nothing to evaluate")


def network(num_classes: int, pixels: int, hidden: tuple[int, ...] = SEED_HIDDEN) -> Any:
    """The seed's network (178,762 parameters for 28 x 28 grey pixels and 10 classes), or one with other dense layers
    (5,021,402 with LARGE_HIDDEN)."""
    nn = mx.gluon.nn
    padding = 2 if pixels < SMALL_IMAGE else 0
    net = nn.HybridSequential(prefix="")
    with net.name_scope():
        net.add(
            nn.Conv2D(16, kernel_size=5, padding=padding, activation="relu", prefix="conv0_"),
            nn.MaxPool2D(pool_size=2, strides=2),
            nn.Conv2D(32, kernel_size=5, padding=padding, activation="relu", prefix="conv1_"),
            nn.MaxPool2D(pool_size=2, strides=2),
            *(nn.Dense(units, activation="relu", prefix=f"fc{i}_") for i, units in enumerate(hidden)),
            nn.Dense(num_classes, prefix=f"fc{len(hidden)}_"),
        )
    return net


def text_network(data: Data) -> Any:
    """As `geomx.frameworks.numpy_text`."""
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="")
    with net.name_scope():
        net.add(
            nn.Embedding(data.num_classes, SYMBOL_UNITS, prefix="symbols_"),
            nn.Flatten(),
            nn.Dense(HIDDEN_UNITS, activation="relu", prefix="fc0_"),
            nn.Dense(data.num_classes, prefix="fc1_"),
        )
    return net


def _updater(given: Mapping[str, Any]) -> Any:
    params = {k: v for k, v in given.items() if k != "name"}
    try:
        return mx.optimizer.get_updater(mx.optimizer.create(given["name"], **params))
    except (ValueError, TypeError, mx.base.MXNetError) as e:
        raise ConfigError(f"sync.optimizer: MXNet can't make {given['name']}: {str(e).splitlines()[0]}") from e
