"""Optimizers as they travel: a name and checked parameters, never code. Knows no framework and no node.

The core has sgd, adam and dcasgd; another name is built by MXNet on the global servers (`geomx.updaters`). All take
`learning_rate`, `wd` (weight decay), `rescale_grad` (the summed gradient is multiplied by it first) and
`clip_gradient` (each element is clipped to this magnitude; absent: not clipped).
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from geomx.errors import ConfigError
from geomx.spec import setting

Scalar = int | float | bool | str
_Rule = tuple[str, Callable[[float], bool]]

_AT_LEAST_0: _Rule = ("a number of at least 0", lambda v: v >= 0)
_ABOVE_0: _Rule = ("a number above 0", lambda v: v > 0)
_BELOW_1: _Rule = ("a number from 0 and below 1", lambda v: 0 <= v < 1)

_COMMON: dict[str, _Rule] = {
    "learning_rate": _AT_LEAST_0,
    "wd": _AT_LEAST_0,
    "rescale_grad": _ABOVE_0,
    "clip_gradient": _ABOVE_0,
}
_OWN: dict[str, dict[str, _Rule]] = {
    "sgd": {"momentum": _BELOW_1},
    "adam": {"beta1": _BELOW_1, "beta2": _BELOW_1, "epsilon": _ABOVE_0},
    "dcasgd": {"momentum": _BELOW_1, "lamda": _AT_LEAST_0},
}
_WORD = re.compile(r"[a-z][a-z0-9_]*")


def checked(optimizer: str | Mapping[str, Any], **params: Scalar) -> dict[str, Scalar]:
    """{"name": ..., parameters as given}. Raises ConfigError naming the optimizer, the parameter and what is allowed.

    checked("adam", learning_rate=0.01) and checked({"name": "adam", "learning_rate": 0.01}) are the same. Parameters
    that aren't given aren't added: defaults belong to whoever updates.
    """
    given: dict[str, Any] = {"name": optimizer} if isinstance(optimizer, str) else dict(optimizer)
    given.update(params)
    name = given.pop("name", None)
    if not isinstance(name, str) or not _WORD.fullmatch(name.lower()):
        raise ConfigError(f"optimizer: {name!r} given as its name, needed is a word like {', '.join(_OWN)}")
    name = name.lower()
    if name == "none":
        if given:
            raise ConfigError(f"optimizer none: takes no parameters, {', '.join(given)} given")
        return {"name": name}
    return {"name": name, **{param: _value(name, param, value) for param, value in given.items()}}


def text(optimizer: Mapping[str, Scalar]) -> str:
    """The one text of a checked optimizer, as settings and `Node.configure` take it: "none" or JSON."""
    return "none" if optimizer["name"] == "none" else setting(dict(optimizer))


def _value(name: str, param: str, value: Any) -> Scalar:
    where = f"optimizer {name}: {param}"
    if not isinstance(value, (int, float, bool, str)):
        raise ConfigError(f"{where}: {value!r} given; an optimizer travels as a name and numbers, words or true/false")
    rule = {**_COMMON, **_OWN.get(name, {})}.get(param)
    if rule is None:
        if name in _OWN:
            known = ", ".join([*_COMMON, *_OWN[name]])
            raise ConfigError(f"{where}: no such parameter; there are: {known}")
        return value
    allowed, test = rule
    if isinstance(value, (bool, str)) or not math.isfinite(value) or not test(value):
        raise ConfigError(f"{where}: {value!r} given, allowed is {allowed}")
    return float(value)
