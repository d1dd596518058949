"""framework=numpy: a small reference model with its gradients written out. The same numbers on every run."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.errors import ConfigError
from geomx.frameworks import Watch
from geomx.kv import Store
from geomx.spec import NodeSpec
from geomx.tasks import SEED_HIDDEN, Data, Task

Floats = NDArray[np.float32]
Step = Callable[[int, Floats, Floats], None]  # (which tensor, weight, gradient): changes the weight in place

HIDDEN_UNITS = 64
EVALUATE_SAMPLES = 4096  # at once


class NumpyAdapter:
    def store(self, node: Any, spec: NodeSpec) -> Store:
        return Store(node, spec)

    def model(self, task: Task, seed: int, optimizer: Mapping[str, Any] | None) -> "Mlp | Tensors":
        if task.hidden != SEED_HIDDEN:
            raise ConfigError(
                "task.model: framework=numpy has one small network; use task.model=seed or framework=mxnet"
            )
        step = _no_step if optimizer is None else local_optimizer(optimizer)
        if task.data is None:
            return Tensors(task, seed, step)
        if task.data.is_text:
            from geomx.frameworks.numpy_text import NextSymbol

            return NextSymbol(task.data, seed, step)
        return Mlp(task.data, seed, step)


def make(options: Any) -> NumpyAdapter:
    """options: `geomx.config.task.Numpy`."""
    return NumpyAdapter()


class Mlp:
    """inputs -> 64 rectified units -> classes, softmax and cross-entropy."""

    def __init__(self, data: Data, seed: int, step: Step) -> None:
        self.names = ["fc0.weight", "fc0.bias", "fc1.weight", "fc1.bias"]
        rng = np.random.default_rng(seed)
        inputs = data.train_x[0].size
        self.weights = [
            drawn(rng, HIDDEN_UNITS, inputs),
            np.zeros(HIDDEN_UNITS, np.float32),
            drawn(rng, data.num_classes, HIDDEN_UNITS),
            np.zeros(data.num_classes, np.float32),
        ]
        self.gradients = [np.zeros_like(w) for w in self.weights]
        self.watch = Watch()
        self._step = step
        self._loss = 0.0

    def backward(self, x: Floats, y: NDArray[np.int32], scale: float) -> None:
        flat, hidden, logits = self._forward(x)
        error: Floats = softmax(logits)
        self._loss = cross_entropy(error, y)
        error[np.arange(len(y)), y] -= 1
        error *= np.float32(scale / len(y))
        self._backward(x, flat, hidden, error)
        for layer in reversed(range(len(self.names) - 2)):
            self.watch.made(layer)

    def update(self, layer: int | None = None) -> None:
        _update(self, self._step, layer)

    def loss(self) -> float:
        return self._loss

    def ready(self) -> None:
        pass

    def evaluate(self, x: Floats, y: NDArray[np.int32]) -> tuple[float, float]:
        loss, right = 0.0, 0
        for start in range(0, len(y), EVALUATE_SAMPLES):
            part = slice(start, start + EVALUATE_SAMPLES)
            chances = softmax(self._forward(x[part])[2])
            loss += cross_entropy(chances, y[part]) * len(chances)
            right += int((chances.argmax(1) == y[part]).sum())
        return loss / len(y), right / len(y)

    def values(self) -> list[Floats]:
        return self.weights

    def _forward(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """(first layer's inputs, its outputs, logits), a row for each sample."""
        w0, b0, w1, b1 = self.weights[-4:]
        top = len(self.names) - 2
        for layer in range(top):
            self.watch.before(layer)
        flat = self._inputs(x)
        hidden = np.maximum(flat @ w0.T + b0, 0)
        for layer in (top, top + 1):
            self.watch.before(layer)
        return flat, hidden, hidden @ w1.T + b1

    def _inputs(self, x: Any) -> Floats:
        flat: Floats = x.reshape(len(x), -1)
        return flat

    def _backward(self, x: Any, flat: Floats, hidden: Floats, error: Floats) -> Floats:
        """Gradients of the two layers from that of the logits; returns that of the first layer's outputs."""
        behind: Floats = np.where(hidden > 0, error @ self.weights[-2], np.float32(0))
        self.gradients[-2][...] = error.T @ hidden
        self.gradients[-1][...] = error.sum(0)
        for layer in (len(self.names) - 1, len(self.names) - 2):
            self.watch.made(layer)
        self.gradients[-4][...] = behind.T @ flat
        self.gradients[-3][...] = behind.sum(0)
        return behind


class Tensors:
    """The tensors of a task without data: random gradients, no loss. Computing is waiting: a third of the stated time
    forward, layer by layer as their weights come in, the rest backward."""

    def __init__(self, task: Task, seed: int, step: Step) -> None:
        rng = np.random.default_rng(seed)
        self.names = [name for name, _ in task.tensors]
        self.weights = [np.zeros(shape, np.float32) for _, shape in task.tensors]
        self.gradients = [rng.standard_normal(shape, np.float32) for _, shape in task.tensors]
        self.watch = Watch()
        self._layer_s = task.compute_s / len(self.names)
        self._step = step

    def backward(self, x: Any, y: Any, scale: float) -> None:
        for layer in range(len(self.names)):
            self.watch.before(layer)
            time.sleep(self._layer_s / 3)
        for layer in reversed(range(len(self.names))):
            time.sleep(self._layer_s * 2 / 3)
            if self._step is not _no_step:  # gradients hold the last round's sums, which must not grow
                self.gradients[layer] *= np.float32(scale)
            self.watch.made(layer)

    def update(self, layer: int | None = None) -> None:
        _update(self, self._step, layer)

    def loss(self) -> float:
        return 0.0

    def ready(self) -> None:
        pass

    def evaluate(self, x: Any, y: Any) -> tuple[float, float]:
        raise ConfigError("task synthetic: there is nothing to evaluate")

    def values(self) -> list[Floats]:
        return self.weights


def _update(model: "Mlp | Tensors", step: Step, layer: int | None) -> None:
    for i in range(len(model.names)) if layer is None else [layer]:
        step(i, model.weights[i], model.gradients[i])


def local_optimizer(given: Mapping[str, Any]) -> Step:
    """sgd or adam from name and parameters. Raises ConfigError for others."""
    params = {k: float(v) for k, v in given.items() if k != "name"}
    makers = {"sgd": _sgd, "adam": _adam}
    if given["name"] not in makers:
        raise ConfigError(
            f"sync.optimizer.name: {given['name']!r} given, on workers framework=numpy has {' and '.join(makers)}"
        )
    return makers[given["name"]](params)


def _no_step(i: int, weight: Floats, gradient: Floats) -> None:
    pass


def _sgd(p: dict[str, float]) -> Step:
    momenta: dict[int, Floats] = {}

    def step(i: int, weight: Floats, gradient: Floats) -> None:
        g = np.float32(p["learning_rate"]) * (gradient + np.float32(p.get("wd", 0)) * weight)
        momenta[i] = np.float32(p.get("momentum", 0)) * momenta.get(i, np.zeros_like(weight)) - g
        weight += momenta[i]

    return step


def _adam(p: dict[str, float]) -> Step:
    rate, beta1, beta2 = p["learning_rate"], p.get("beta1", 0.9), p.get("beta2", 0.999)
    epsilon, wd = p.get("epsilon", 1e-8), p.get("wd", 0.0)
    states: dict[int, tuple[Floats, Floats, int]] = {}

    def step(i: int, weight: Floats, gradient: Floats) -> None:
        m, v, t = states.get(i, (np.zeros_like(weight), np.zeros_like(weight), 0))
        g = gradient + np.float32(wd) * weight
        m = np.float32(beta1) * m + np.float32(1 - beta1) * g
        v = np.float32(beta2) * v + np.float32(1 - beta2) * g * g
        t += 1
        states[i] = (m, v, t)
        scaled = np.float32(rate * (1 - beta2**t) ** 0.5 / (1 - beta1**t))
        weight -= scaled * m / (np.sqrt(v) + np.float32(epsilon))

    return step


def drawn(rng: np.random.Generator, units: int, inputs: int) -> Floats:
    """Xavier's uniform draw."""
    bound = (6 / (units + inputs)) ** 0.5
    return rng.uniform(-bound, bound, (units, inputs)).astype(np.float32)


def softmax(logits: Floats) -> Floats:
    raised: Floats = np.exp(logits - logits.max(1, keepdims=True))
    raised /= raised.sum(1, keepdims=True)
    return raised


def cross_entropy(chances: Floats, y: NDArray[np.int32]) -> float:
    return float(-np.log(chances[np.arange(len(y)), y] + 1e-12).mean())
