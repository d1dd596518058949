"""task=digits: scikit-learn's 1,797 handwritten digits of 8 x 8 pixels, which need no download."""

import dataclasses
from importlib import import_module
from typing import Any

import numpy as np

from geomx.errors import ConfigError
from geomx.tasks import LARGE_HIDDEN, SEED_HIDDEN, Data, DataTask, Values

TEST_SAMPLES = 360
_SPLIT_SEED = 20  # fixed: the test set is the same in every run, whatever the run's seed


def make(options: Any) -> DataTask:
    """options: `geomx.config.task.Digits`."""
    data = load()
    if options.pixels != data.train_x.shape[2]:
        data = dataclasses.replace(
            data, train_x=enlarged(data.train_x, options.pixels), test_x=enlarged(data.test_x, options.pixels)
        )
    return DataTask(options, data, LARGE_HIDDEN if options.model == "large" else SEED_HIDDEN)


def enlarged(images: Values, pixels: int) -> Values:
    """(samples, 1, n, n) -> (samples, 1, pixels, pixels), linear between the centres of pixels."""
    n = images.shape[2]
    at = np.clip((np.arange(pixels) + 0.5) * n / pixels - 0.5, 0, n - 1)
    below = np.minimum(at.astype(int), n - 2)
    share = at - below
    weights = np.zeros((pixels, n), np.float32)
    weights[np.arange(pixels), below] = 1 - share
    weights[np.arange(pixels), below + 1] = share
    return np.ascontiguousarray(weights @ images @ weights.T, np.float32)


def load() -> Data:
    """1,437 images to train on, 360 to test, each (1, 8, 8) from 0 to 1. Raises ConfigError without scikit-learn."""
    try:
        load_digits = import_module("sklearn.datasets").load_digits
    except ImportError as e:
        raise ConfigError(f"task digits: scikit-learn can't be imported: {e}; pip install scikit-learn") from e
    raw = load_digits()
    images = (raw.images / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = raw.target.astype(np.int32)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(labels))
    test, train = order[:TEST_SAMPLES], order[TEST_SAMPLES:]
    return Data(images[train], labels[train], images[test], labels[test], num_classes=10)
