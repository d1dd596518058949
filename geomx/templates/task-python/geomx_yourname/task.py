"""Images of 8 x 8 pixels with stripes of a random phase: level, upright, and both diagonals."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.tasks import Data, DataTask

PIXELS = 8
WAYS = np.array([(0, 1), (1, 0), (1, 1), (1, -1)], np.float32)  # (x, y) across the stripes of each class
DATA_SEED = 4  # fixed: all workers make the same data, in every run


def make(options: Any) -> DataTask:
    """options: `geomx_yourname.Yourname`."""
    random = np.random.default_rng(DATA_SEED)
    train_x, train_y = stripes(random, options.samples, options.noise)
    test_x, test_y = stripes(random, options.samples // 4, options.noise)
    return DataTask(options, Data(train_x, train_y, test_x, test_y, num_classes=len(WAYS)))


def stripes(random: np.random.Generator, samples: int, noise: float) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """(samples, 1, 8, 8) about 0 to 1, and which way each goes."""
    labels = random.integers(0, len(WAYS), samples).astype(np.int32)
    phases = random.uniform(0, 2 * np.pi, (samples, 1, 1))
    y, x = np.mgrid[:PIXELS, :PIXELS] * (np.pi / 2)
    across = WAYS[labels, 0, None, None] * x + WAYS[labels, 1, None, None] * y
    images = 0.5 + 0.5 * np.sin(across + phases) + noise * random.standard_normal((samples, PIXELS, PIXELS))
    return images[:, None].astype(np.float32), labels
