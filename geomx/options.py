"""Typed options that know what they allow: one declaration serves the check, the error text and the docs.

Knows neither Hydra nor the groups; what a plugin author needs of it is offered by `geomx.api`.
"""

import dataclasses
import operator
import types
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Union, get_args, get_origin, get_type_hints

from geomx.errors import ConfigError

KINDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
TESTS: dict[str, Any] = {
    "above": operator.gt,
    "at_least": operator.ge,
    "below": operator.lt,
    "at_most": operator.le,
    "one_of": lambda value, words: value in words,
}


def option(default: Any, help: str, *, scope: str = "run", **allowed: Any) -> Any:
    """A field of a config dataclass.

    scope: "run" where all nodes must hold the same value, "node" where each may have its own. allowed: above,
    at_least, below, at_most (numbers) and one_of (a tuple of values). Of a list or dict each object gets its own copy;
    a class or function as default is called for each object. Raises TypeError for a rule that doesn't exist.
    """
    if unknown := allowed.keys() - TESTS.keys():
        raise TypeError(f"option: no such rule: {', '.join(sorted(unknown))}; there are: {', '.join(TESTS)}")
    metadata = {"help": help, "allowed": allowed, "scope": scope}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def fields_of(config: Any) -> dict[str, Any]:
    """Declared fields of a config dataclass or one of its objects, by name; empty for anything else."""
    return getattr(config, "__dataclass_fields__", {})


def allowed_text(cls: type, name: str) -> str:
    """'a number above 0 and at most 1'"""
    hint, allowed = get_type_hints(cls)[name], fields_of(cls)[name].metadata.get("allowed", {})
    if "one_of" in allowed:
        return "one of " + ", ".join(map(str, allowed["one_of"]))
    kinds = [_kind(t) for t in _alternatives(hint)]
    rules = " and ".join(f"{rule.replace('_', ' ')} {limit:,}" for rule, limit in allowed.items())
    return f"{' or '.join(kinds)} {rules}".strip()


def check(value: Any, path: str = "") -> None:
    """Walks a tree of config objects; raises ConfigError for the first value that is not allowed or not declared."""
    declared = fields_of(value)
    for name, child in _children(value):
        where = f"{path}.{name}".lstrip(".")
        if name in declared:
            _check_field(value, name, child, where)
        elif dataclasses.is_dataclass(value) and name != "name":
            raise ConfigError(f"{where}: no such option")
        check(child, where)


def build(cls: Any, given: dict[str, Any], where: str) -> Any:
    """A config dataclass from a plain dict, nested ones too; raises ConfigError for unknown, wrong or missing values.

    `name`, which says what was chosen in a group, is set as an attribute where the class doesn't declare it.
    """
    declared, hints = fields_of(cls), get_type_hints(cls)
    values = {k: v for k, v in given.items() if k != "name" or k in declared}
    if unknown := sorted(values.keys() - declared.keys()):
        known = ", ".join(declared) or "none"
        raise ConfigError(f"{where}.{unknown[0]}: no such option; there are: {known}")
    for name, value in values.items():
        if dataclasses.is_dataclass(hints[name]) and isinstance(value, dict):
            values[name] = build(hints[name], value, f"{where}.{name}")
    try:
        made = cls(**values)
    except TypeError:
        missing = [n for n, f in declared.items() if f.default is f.default_factory is dataclasses.MISSING]
        raise ConfigError(f"{where}: a value is required: {', '.join(n for n in missing if n not in values)}") from None
    if "name" in given and "name" not in declared:
        made.name = given["name"]
    check(made, where)
    return made


def plain(config: Any) -> Any:
    """A tree of config objects as dicts, lists, numbers and words; the choice's name comes first."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {k: plain(v) for k, v in sorted(vars(config).items(), key=lambda item: item[0] != "name")}
    if isinstance(config, dict):
        return {k: plain(v) for k, v in config.items()}
    return [plain(v) for v in config] if isinstance(config, list | tuple) else config


def shared(config: Any) -> Any:
    """As `plain`, without the options that each node has for itself."""
    own = {name for name, f in fields_of(config).items() if f.metadata.get("scope") == "node"}
    found = plain(config)
    return {k: v for k, v in found.items() if k not in own} if own else found


def _check_field(owner: Any, name: str, value: Any, where: str) -> None:
    cls = type(owner)
    if not _fits(get_type_hints(cls)[name], value):
        raise ConfigError(f"{where}: {value!r} given, allowed is {allowed_text(cls, name)}")
    allowed = fields_of(owner)[name].metadata.get("allowed", {})
    # "not all": NaN compares false with everything and is refused
    if value is not None and not all(TESTS[rule](value, limit) for rule, limit in allowed.items()):
        raise ConfigError(f"{where}: {value!r} given, allowed is {allowed_text(cls, name)}")


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(value):
        yield from vars(value).items()
    elif isinstance(value, dict):
        yield from value.items()


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)


def _kind(hint: Any) -> str:
    if hint is type(None):
        return "null"
    origin = get_origin(hint) or hint
    return KINDS.get(hint) or {list: "a list", dict: "a mapping"}.get(origin, str(hint).replace("typing.", ""))


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value is of its field's type: only the plain kinds are judged, an int serves as a float."""
    kinds = _alternatives(hint)
    if not all(kind in KINDS or kind is type(None) for kind in kinds):
        return True
    wanted = tuple(int | float if kind is float else kind for kind in kinds)
    return any(isinstance(value, kind) for kind in wanted) and (not isinstance(value, bool) or bool in kinds)
