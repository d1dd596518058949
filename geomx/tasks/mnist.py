"""task=mnist: MNIST, 28 x 28 handwritten digits, from local files."""

from typing import Any

from geomx.tasks import DataTask
from geomx.tasks.files import expect, load_idx

URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"


def make(options: Any) -> DataTask:
    """options: `geomx.config.task.Images`. Raises ConfigError saying which file to put where."""
    return DataTask(options, load_idx("mnist", options, URL))


def check_here(options: Any) -> None:
    """Raises ConfigError where the files are not on this machine."""
    expect("mnist", options, URL)
