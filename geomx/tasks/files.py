"""Reads data sets from local files in the formats that they are published in, compressed by gzip or not.

idx (MNIST, Fashion-MNIST): big-endian; two zero bytes, a type (8: unsigned byte), the number of dimensions, each
dimension as 32 bits, then the bytes. CIFAR-10's binary version: records of one label and 3 x 32 x 32 bytes.
"""

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.errors import ConfigError
from geomx.tasks import Data

CIFAR_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")

Bytes = NDArray[np.uint8]
CIFAR_RECORD = 1 + 3 * 32 * 32
IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def folder(task: str, options: Any) -> Path:
    """Where the files of a task are expected."""
    return Path(options.data_dir).expanduser() if options.data_dir else Path.home() / ".mxnet" / "datasets" / task


def expect(task: str, options: Any, url: str) -> None:
    """Raises ConfigError saying which file to put where; reads none."""
    is_cifar = task == "cifar10"
    where = _cifar_folder(folder(task, options)) if is_cifar else folder(task, options)
    for name in CIFAR_FILES if is_cifar else IDX_FILES:
        _find(task, where, name, url)


def load_idx(task: str, options: Any, url: str) -> Data:
    """MNIST or a set in its format. Raises ConfigError saying which file to put where."""
    where = folder(task, options)
    images, labels, test_images, test_labels = (_idx(_find(task, where, name, url)) for name in IDX_FILES)
    return Data(_scaled(images[:, None]), _labels(labels), _scaled(test_images[:, None]), _labels(test_labels), 10)


def load_cifar(task: str, options: Any, url: str) -> Data:
    """CIFAR-10. Raises ConfigError saying which file to put where."""
    where = _cifar_folder(folder(task, options))
    *train, test = (_cifar(_find(task, where, name, url)) for name in CIFAR_FILES)
    images, labels = np.concatenate([x for x, _ in train]), np.concatenate([y for _, y in train])
    return Data(_scaled(images), _labels(labels), _scaled(test[0]), _labels(test[1]), 10)


def _cifar_folder(where: Path) -> Path:
    inner = where / "cifar-10-batches-bin"  # as the archive has it
    return inner if inner.is_dir() else where


def _find(task: str, where: Path, name: str, url: str) -> Path:
    for found in (where / name, where / f"{name}.gz"):
        if found.is_file():
            return found
    raise ConfigError(
        f"task {task}: {name} (or {name}.gz) is not in {where}; get it from {url} and put it there, or "
        "say where it is: task.data_dir=FOLDER"
    )


def _read(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as e:
        raise ConfigError(f"{path} can't be read: {e}") from None


def _idx(path: Path) -> Bytes:
    data = _read(path)
    num_dims = data[3] if len(data) > 3 else 0
    if data[:3] != b"\x00\x00\x08" or not 1 <= num_dims <= 3 or len(data) < 4 + 4 * num_dims:
        raise ConfigError(f"{path}: is not an idx file of bytes; its first bytes are {data[:4].hex()}")
    dims = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(num_dims)]
    if len(data) != 4 + 4 * num_dims + math.prod(dims):
        raise ConfigError(
            f"{path}: expected {math.prod(dims)} values for shape {dims} but got {len(data) - 4 - 4 * num_dims}"
        )
    return np.frombuffer(data, np.uint8, offset=4 + 4 * num_dims).reshape(dims)


def _cifar(path: Path) -> tuple[Bytes, Bytes]:
    data = np.frombuffer(_read(path), np.uint8)
    if data.size == 0 or data.size % CIFAR_RECORD:
        raise ConfigError(f"{path}: expected records of {CIFAR_RECORD} bytes but got {data.size} bytes")
    records = data.reshape(-1, CIFAR_RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _scaled(images: Bytes) -> NDArray[np.float32]:
    return images.astype(np.float32) / np.float32(255)


def _labels(labels: Bytes) -> NDArray[np.int32]:
    return labels.astype(np.int32)
