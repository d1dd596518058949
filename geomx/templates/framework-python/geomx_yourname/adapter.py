"""Softmax regression: logits are inputs times weights, plus a bias."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.api import ConfigError
from geomx.frameworks import Watch
from geomx.kv import Store
from geomx.spec import NodeSpec
from geomx.tasks import Task

Floats = NDArray[np.float32]


class Adapter:
    def __init__(self, options: Any) -> None:
        self._options = options

    def store(self, node: Any, spec: NodeSpec) -> Store:
        """The plain one takes numpy's arrays."""
        return Store(node, spec)

    def model(self, task: Task, seed: int, optimizer: Mapping[str, Any] | None) -> "Linear":
        if task.data is None:
            raise ConfigError("framework=yourname: it needs a task with data")
        if optimizer is not None and optimizer["name"] != "sgd":
            raise ConfigError(f"framework=yourname: on workers it has sgd, not {optimizer['name']}")
        inputs = task.data.train_x[0].size
        rate = float(optimizer["learning_rate"]) if optimizer else 0.0
        return Linear(inputs, task.data.num_classes, seed, self._options.spread, rate)


def make(options: Any) -> Adapter:
    """options: `geomx_yourname.Yourname`."""
    return Adapter(options)


class Linear:
    def __init__(self, inputs: int, classes: int, seed: int, spread: float, rate: float) -> None:
        random = np.random.default_rng(seed)
        self.names = ["weight", "bias"]
        self.weights = [
            (spread * random.standard_normal((inputs, classes))).astype(np.float32),
            np.zeros(classes, np.float32),
        ]
        self.gradients = [np.zeros_like(w) for w in self.weights]
        self.watch = Watch()
        self._rate, self._loss = np.float32(rate), 0.0

    def backward(self, x: Floats, y: NDArray[np.int32], scale: float) -> None:
        """Gradients of the mean loss, times `scale`."""
        flat = x.reshape(len(x), -1)
        error = self._chances(flat)
        self._loss = cross_entropy(error, y)
        error[np.arange(len(y)), y] -= 1
        error *= np.float32(scale / len(y))
        self.gradients[0][...] = flat.T @ error
        self.gradients[1][...] = error.sum(0)

    def update(self, layer: int | None = None) -> None:
        for i in range(len(self.weights)) if layer is None else [layer]:
            self.weights[i] -= self._rate * self.gradients[i]

    def loss(self) -> float:
        return self._loss

    def ready(self) -> None:
        """Nothing runs beside: the next pass can begin."""

    def evaluate(self, x: Floats, y: NDArray[np.int32]) -> tuple[float, float]:
        chances = self._chances(x.reshape(len(x), -1))
        return cross_entropy(chances, y), float((chances.argmax(1) == y).mean())

    def values(self) -> list[Floats]:
        return self.weights

    def _chances(self, flat: Floats) -> Floats:
        for layer in range(len(self.weights)):
            self.watch.before(layer)  # it waits until the layer's new values are there
        logits = flat @ self.weights[0] + self.weights[1]
        raised: Floats = np.exp(logits - logits.max(1, keepdims=True))
        raised /= raised.sum(1, keepdims=True)
        return raised


def cross_entropy(chances: Floats, y: NDArray[np.int32]) -> float:
    return float(-np.log(chances[np.arange(len(y)), y] + 1e-12).mean())
