"""task=fashion_mnist: Fashion-MNIST, 28 x 28 pictures of clothes, from local files."""

from typing import Any

from geomx.tasks import DataTask
from geomx.tasks.files import expect, load_idx

URL = "https://github.com/zalandoresearch/fashion-mnist"


def make(options: Any) -> DataTask:
    """options: `geomx.config.task.Images`. Raises ConfigError saying which file to put where."""
    return DataTask(options, load_idx("fashion-mnist", options, URL))


def check_here(options: Any) -> None:
    """Raises ConfigError where the files are not on this machine."""
    expect("fashion-mnist", options, URL)
