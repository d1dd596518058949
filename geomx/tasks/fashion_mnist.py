"""task=fashion_mnist: Fashion-MNIST, 28 x 28 pictures of clothes, from local files."""

from typing import Any

from geomx.tasks import DataTask
from geomx.tasks.files import load_idx

URL = "https://github.com/zalandoresearch/fashion-mnist"


def make(options: Any) -> DataTask:
    """options: `geomx.config.task.Images`. Raises ConfigError saying which file to put where."""
    return DataTask(options, load_idx("fashion-mnist", options, URL))
