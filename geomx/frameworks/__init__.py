"""Framework adapters: a model in a framework's own arrays, and the store that speaks them.

`geomx.frameworks.<name>:make(options)` returns an `Adapter`. The training loop (`geomx.train`) sees nothing else of a
framework.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from geomx.kv import Store
from geomx.spec import NodeSpec
from geomx.tasks import Task


def ignore(layer: int) -> None:
    pass


class Watch:
    """Who wants to know where a model is in its passes: `before(i)` is called when a pass is about to read weight i,
    `made(i)` when gradient i is there and weight i is not needed any more in this pass. Models whose framework keeps
    track of who reads and writes an array call neither."""

    before: Callable[[int], None] = staticmethod(ignore)
    made: Callable[[int], None] = staticmethod(ignore)


class Model(Protocol):
    """Weights and gradients are the framework's own arrays, in the order in which layers run, and stay the same
    objects; values change in place. Calls may return before their work is done, as the framework does it."""

    names: list[str]
    weights: Sequence[Any]
    gradients: Sequence[Any]
    watch: Watch

    def backward(self, x: Any, y: Any, scale: float) -> None:
        """Gradients of the mean loss over the batch, times `scale`."""

    def update(self, layer: int | None = None) -> None:
        """The worker's own optimizer: weights (or this one) from what `gradients` holds now."""

    def loss(self) -> float:
        """Mean loss of the last batch. Waits for the forward pass."""

    def ready(self) -> None:
        """Waits until the next forward pass could begin: the first layer's values are there."""

    def evaluate(self, x: Any, y: Any) -> tuple[float, float]:
        """(mean loss, share of right answers) on these samples."""

    def values(self) -> list[NDArray[np.float32]]:
        """The weights, once all that is under way is done."""


class Adapter(Protocol):
    def store(self, node: Any, spec: NodeSpec) -> Store:
        """The store for this framework's arrays on a started node."""

    def model(self, task: Task, seed: int, optimizer: Mapping[str, Any] | None) -> Model:
        """A model for the task, its first weights drawn by `seed`. optimizer: name and parameters for `update`, None
        where the servers have it."""
