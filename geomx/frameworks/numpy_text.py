"""framework=numpy: a small model of text, with its gradients written out.

Bengio et al. 2003: each symbol of the context is looked up in a table, what is found is joined and goes through one
hidden layer to a softmax over all symbols.
"""

from typing import Any

import numpy as np

from geomx.frameworks import Watch
from geomx.frameworks.numpy import Floats, Mlp, Step, drawn
from geomx.tasks import Data

SYMBOL_UNITS = 24
HIDDEN_UNITS = 256


class NextSymbol(Mlp):
    """125,817 parameters for 16 symbols of 97."""

    def __init__(self, data: Data, seed: int, step: Step) -> None:
        rng = np.random.default_rng(seed)
        self.names = ["symbols", "fc0.weight", "fc0.bias", "fc1.weight", "fc1.bias"]
        self.weights = [
            rng.standard_normal((data.num_classes, SYMBOL_UNITS), np.float32),
            drawn(rng, HIDDEN_UNITS, data.train_x.shape[1] * SYMBOL_UNITS),
            np.zeros(HIDDEN_UNITS, np.float32),
            drawn(rng, data.num_classes, HIDDEN_UNITS),
            np.zeros(data.num_classes, np.float32),
        ]
        self.gradients = [np.zeros_like(w) for w in self.weights]
        self.watch = Watch()
        self._step = step
        self._loss = 0.0

    def _inputs(self, x: Any) -> Floats:
        flat: Floats = self.weights[0][x].reshape(len(x), -1)
        return flat

    def _backward(self, x: Any, flat: Floats, hidden: Floats, error: Floats) -> Floats:
        behind = super()._backward(x, flat, hidden, error)
        by_symbol = (behind @ self.weights[1]).reshape(-1, SYMBOL_UNITS)
        is_symbol = np.zeros((x.size, len(self.weights[0])), np.float32)  # a product is faster than add.at
        is_symbol[np.arange(x.size), x.ravel()] = 1
        self.gradients[0][...] = is_symbol.T @ by_symbol
        return behind
