"""Optimizers by way of MXNet: one that a script made -> name and parameters; a name -> updates on a global server.

Only what MXNet itself registers under a name is built; nothing that came over the network is unpickled or imported.
"""

import inspect
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from geomx import mxshim, optimizers
from geomx.errors import ConfigError

_COMMON = {"lr": "learning_rate", "learning_rate": "learning_rate", "wd": "wd", "rescale_grad": "rescale_grad",
           "clip_gradient": "clip_gradient"}  # fmt: skip
_LEFT_OUT = ("lazy_update", "multi_precision", "param_idx2name", "param_dict", "lr_scheduler", "begin_num_update",
             "sym", "aggregate_num", "use_fused_step", "self", "kwargs", "args")  # fmt: skip

Update = Callable[[int, int, Any, Any], None]


def params_of(optimizer: Any) -> dict[str, optimizers.Scalar]:
    """A mx.optimizer.Optimizer as {"name": ..., parameters}. Raises ConfigError for one that is more than that."""
    name = type(optimizer).__name__.lower()
    _refuse_what_cant_travel(name, optimizer)
    found: dict[str, Any] = {
        "learning_rate": optimizer.learning_rate,
        "wd": optimizer.wd,
        "rescale_grad": optimizer.rescale_grad,
        "clip_gradient": optimizer.clip_gradient,
    }
    for param in _own_params(type(optimizer)):
        found[param] = _attribute(name, optimizer, param)
    return optimizers.checked({"name": name, **{k: _plain(v) for k, v in found.items() if v is not None}})


def make(text: str) -> Update:
    """The setting "optimizer" -> update(key, offset, gradient, weight): what global servers call for optimizers that
    the core lacks. gradient and weight are one-dimensional numpy arrays of a shard; weight changes in place. States
    are kept by (key, offset)."""
    mx = mxshim.mxnet()
    given = json.loads(text)
    name = given.pop("name")
    try:
        optimizer = mx.optimizer.create(name, **given)
    except (ValueError, TypeError, mx.base.MXNetError) as e:
        reason = str(e).splitlines()[0]
        raise ConfigError(f"optimizer {name}: MXNet can't make it: {reason}") from e
    states: dict[tuple[int, int], Any] = {}
    numbers: dict[tuple[int, int], int] = {}

    def update(key: int, offset: int, gradient: Any, weight: Any) -> None:
        place = (key, offset)
        w, g = mx.nd.array(weight, dtype=weight.dtype), mx.nd.array(gradient, dtype=weight.dtype)
        index = numbers.setdefault(place, len(numbers))  # MXNet counts updates for each index
        if place not in states:
            states[place] = optimizer.create_state(index, w)
        optimizer.update(index, w, g, states[place])
        np.copyto(weight, w.asnumpy())

    return update


def _refuse_what_cant_travel(name: str, optimizer: Any) -> None:
    if getattr(optimizer, "lr_scheduler", None) is not None:
        raise ConfigError(
            f"optimizer {name}: has a learning-rate scheduler, which the servers can't run: leave the "
            "optimizer on the workers (update_on_kvstore=False)"
        )
    params = getattr(optimizer, "param_dict", None) or {}
    for multiplier in ("lr_mult", "wd_mult"):
        named = [p.name for p in params.values() if getattr(p, multiplier, 1.0) != 1.0]
        named += [str(k) for k, v in (getattr(optimizer, multiplier, None) or {}).items() if v != 1.0]
        if named:
            raise ConfigError(
                f"optimizer {name}: {multiplier} of {named[0]} isn't 1, which the servers can't do: "
                "leave the optimizer on the workers (update_on_kvstore=False)"
            )


def _own_params(cls: type) -> list[str]:
    """Parameters of the class's constructors that aren't common to all optimizers."""
    found: dict[str, None] = {}
    for base in cls.__mro__:
        if "__init__" in vars(base) and base is not object and base.__name__ != "Optimizer":
            found |= dict.fromkeys(inspect.signature(vars(base)["__init__"]).parameters)
    return [p for p in found if p not in _COMMON and p not in _LEFT_OUT]


def _attribute(name: str, optimizer: Any, param: str) -> Any:
    value = getattr(optimizer, param, inspect.Parameter.empty)
    if value is inspect.Parameter.empty:
        raise ConfigError(
            f"optimizer {name}: its parameter {param} can't be read from the object; use "
            f'set_optimizer("{name}", {param}=...)'
        )
    return value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
