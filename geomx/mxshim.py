"""Imports MXNet the way it still works: with the names that numpy dropped, and without its own role services.

With DMLC_ROLE=server or scheduler in the environment, `import mxnet` would become MXNet's own server and never return.
"""

import os
import sys
import threading
import warnings
from importlib import import_module
from typing import Any

import numpy as np

from geomx.errors import ConfigError

_ROLES = ("DMLC_ROLE", "DMLC_ROLE_GLOBAL")
_DROPPED = {"bool": np.bool_}  # names that mxnet 1.9.1 reads while it is imported
_lock = threading.Lock()


def mxnet() -> Any:
    """The mxnet package. Raises ConfigError where it isn't installed or can't be loaded."""
    with _lock:
        if "mxnet" not in sys.modules:
            _patch_numpy()
            _import_without_role()
        return sys.modules["mxnet"]


def _patch_numpy() -> None:
    for name, value in _DROPPED.items():
        if name not in vars(np):
            setattr(np, name, value)


def _import_without_role() -> None:
    hidden = {name: os.environ.pop(name) for name in _ROLES if name in os.environ}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it uses of numpy and distutils is deprecated, which helps no user
            import_module("mxnet")
    except (ImportError, OSError, AttributeError) as e:
        raise ConfigError(f"framework mxnet: can't be imported: {e}; pip install 'geomx[mxnet]'") from e
    finally:
        os.environ.update(hidden)
