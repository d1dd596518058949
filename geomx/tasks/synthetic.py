"""task=synthetic: the tensors of a known model and a stated time to compute their gradients; no data, no accuracy."""

from collections.abc import Iterator
from typing import Any

from geomx.tasks import SEED_HIDDEN, Batch, Data
from geomx.tasks.shapes import MODELS


class SyntheticTask:
    """options: `geomx.config.task.Synthetic`."""

    data: Data | None = None
    hidden = SEED_HIDDEN

    def __init__(self, options: Any) -> None:
        self._options = options
        self.tensors = MODELS[options.shapes]()
        self.compute_s = options.compute_ms / 1e3

    def batches(self, rank: int, world: int, seed: int) -> Iterator[Batch]:
        for _ in range(self._options.max_rounds):
            yield Batch(None, None, self._options.batch_size)


def make(options: Any) -> SyntheticTask:
    """options: `geomx.config.task.Synthetic`."""
    return SyntheticTask(options)
