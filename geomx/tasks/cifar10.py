"""task=cifar10: CIFAR-10, 32 x 32 colour pictures, its binary version, from local files."""

from typing import Any

from geomx.tasks import DataTask
from geomx.tasks.files import expect, load_cifar

URL = "https://www.cs.toronto.edu/~kriz/cifar.html"


def make(options: Any) -> DataTask:
    """options: `geomx.config.task.Images`. Raises ConfigError saying which file to put where."""
    return DataTask(options, load_cifar("cifar10", options, URL))


def check_here(options: Any) -> None:
    """Raises ConfigError where the files are not on this machine."""
    expect("cifar10", options, URL)
