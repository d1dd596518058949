"""What is trained: data and how workers share it. Tasks know no framework; arrays are numpy's.

`geomx.tasks.<name>:make(options)` returns a `Task`. Images are float32, (samples, channels, height, width), about 0 to
1; text is uint8, (samples, symbols before the one that is to be said); labels are int32, (samples,).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
Labels = NDArray[np.int32]
SEED_HIDDEN = (256, 128)  # the seed's network
LARGE_HIDDEN = (2440, 512, 2440, 512)  # four tensors of 1.25 million each: none of them is most of the model


@dataclass(frozen=True)
class Batch:
    """One step's samples on one worker. x and y are None for a task without data."""

    x: Values | None
    y: Labels | None
    samples: int


@dataclass(frozen=True)
class Data:
    """What to train and to test on: images and their labels, or pieces of text and the symbol that follows."""

    train_x: Values
    train_y: Labels
    test_x: Values
    test_y: Labels
    num_classes: int
    is_text: bool = False  # x are symbols, numbers below num_classes, instead of pixels
    groups: Labels | None = None  # what split=class goes by, one for each training sample; None: the labels

    @property
    def labels_to_split_by(self) -> Labels:
        return self.train_y if self.groups is None else self.groups


class Task(Protocol):
    """`data` is None for a task that is only tensors; then `tensors` names them and says their shapes."""

    data: Data | None
    tensors: list[tuple[str, tuple[int, ...]]]
    compute_s: float
    hidden: tuple[int, ...]  # units of a network's hidden dense layers

    def batches(self, rank: int, world: int, seed: int) -> Iterator[Batch]:
        """The steps of worker `rank` of `world`; as many on each worker."""


class DataTask:
    """A task that has data. options: `geomx.config.task.Training`."""

    compute_s = 0.0

    def __init__(self, options: Any, data: Data, hidden: tuple[int, ...] = SEED_HIDDEN) -> None:
        self.hidden = hidden
        self.tensors: list[tuple[str, tuple[int, ...]]] = []
        self.data: Data | None = data
        self._options = options
        self._data = data

    def batches(self, rank: int, world: int, seed: int) -> Iterator[Batch]:
        o, d = self._options, self._data
        mine = share(d.labels_to_split_by, rank, world, o.split, seed)
        steps = 0
        for epoch in range(o.epochs):
            order = np.random.default_rng([seed, epoch, rank]).permutation(mine)
            for start in range(0, len(order), o.batch_size):
                if o.max_rounds and steps == o.max_rounds:
                    return
                steps += 1
                chosen = order[start : start + o.batch_size]
                yield Batch(d.train_x[chosen], d.train_y[chosen], len(chosen))


def share(labels: Labels, rank: int, world: int, split: str, seed: int) -> NDArray[np.int64]:
    """Indices of worker `rank`'s samples: as many for each worker, no sample twice.

    split iid: shuffled. class: ordered by label and cut, so that a worker sees a `world`th of the labels.
    """
    if not 0 <= rank < world:
        raise ValueError(f"worker {rank} of {world} asks for its share of the data")
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(labels))
    if split == "class":
        shuffled = shuffled[np.argsort(labels[shuffled], kind="stable")]
    size = len(labels) // world
    return shuffled[rank * size : (rank + 1) * size]
