"""Which choices are installed. Listing them reads package metadata only; a plugin is imported when it is chosen.

`python -m geomx.plugins` prints them all, with the distribution that offers each, and what is wrong with broken ones.
"""

import dataclasses
import functools
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from geomx.cli import command, takes_no_words
from geomx.errors import ConfigError
from geomx.options import build, fields_of

CONF = Path(__file__).parent / "conf"  # a link to ../conf in a checkout, a folder in a wheel
ENTRY_POINTS = "geomx.plugins"
FUNCTIONS = ("bench",)  # groups whose choices are functions, not options of a run


@functools.cache
def offers() -> dict[tuple[str, str], list[EntryPoint]]:
    """(group, name) -> who offers it. Entry points are named GROUP.NAME, so nothing is imported to know them."""
    found: dict[tuple[str, str], list[EntryPoint]] = {}
    for e in entry_points(group=ENTRY_POINTS):
        group, _, name = e.name.partition(".")
        known = found.setdefault((group, name), [])
        if not any(_by(e) == _by(k) and e.value == k.value for k in known):  # a distribution seen by two paths
            known.append(e)
    return found


def presets(group: str) -> list[str]:
    """Choices that are YAML files below conf/."""
    return sorted(p.stem for p in (CONF / group).glob("*.yaml"))


def choices(group: str) -> list[str]:
    return sorted({*presets(group), *(name for g, name in offers() if g == group)})


def load(group: str, name: str) -> Any:
    """The dataclass of a choice; of FUNCTIONS, the function. Every way in which a plugin can be broken ends in a
    ConfigError of one sentence."""
    found = offers().get((group, name), [])
    if not found:
        raise ConfigError(unknown(group, name))
    by = [_by(e) for e in found] + [f"conf/{group}/{name}.yaml"] * (name in presets(group))
    if len(by) > 1:
        raise ConfigError(f"{group}={name} is offered more than once, by {' and '.join(by)}: keep one")
    try:
        cls = found[0].load()
        if group in FUNCTIONS:
            return cls
        if not dataclasses.is_dataclass(cls) or not isinstance(cls, type) or "name" in fields_of(cls):
            raise TypeError(f"{found[0].value} must be a dataclass without a field 'name'")
        return cls
    except (Exception, SystemExit) as e:  # a stranger's module may do anything while it is imported
        reason = f"{type(e).__name__}: {(str(e).splitlines() or ['no message'])[0]}"
        raise ConfigError(f"{group}={name} of {by[0]} is broken: {reason}") from e


def unknown(group: str, name: str) -> str:
    """The sentence for a choice that isn't there."""
    if not offers():
        return f"{group}={name} is not installed, nor is anything else: geomx itself must be installed (pip install .)"
    return f"{group}={name} is not installed; there are: {', '.join(choices(group)) or 'none'}"


def options(group: str, given: dict[str, Any]) -> Any:
    """A choice's dataclass, filled from plain data that says which one by `name`. Raises ConfigError."""
    if "name" not in given:
        raise ConfigError(f"{group}: a value is required: name; there are: {', '.join(choices(group))}")
    return build(load(group, given["name"]), given, group)


def target(options: Any) -> Callable[..., Any]:
    """The code behind a choice: what its class variable `target` names. Raises ConfigError where it can't be had."""
    return imported(options.target, f"{type(options).__module__}.{type(options).__qualname__}")


def imported(where: str, asked_by: str) -> Callable[..., Any]:
    """'module:attribute' -> the attribute."""
    module, _, attribute = where.partition(":")
    try:
        found: Callable[..., Any] = getattr(import_module(module), attribute)
        return found
    except (ImportError, AttributeError) as e:
        raise ConfigError(f"{asked_by}: {where} can't be had: {type(e).__name__}: {e}") from e


def _by(e: EntryPoint) -> str:
    return f"{e.dist.name} {e.dist.version}" if e.dist else e.value


def table() -> list[tuple[str, str, str, str]]:
    """(group, name, who offers it, what is wrong with it or "") for everything that is installed."""
    rows = []
    for (group, name), found in sorted(offers().items()):
        try:
            load(group, name)
            wrong = ""
        except ConfigError as e:
            wrong = str(e)
        rows.append((group, name, ", ".join(dict.fromkeys(map(_by, found))), wrong))
    return rows


@command
def main() -> int:
    """Exit code 1 if something is broken."""
    rows = table()
    if not rows:
        print(
            f"nothing is installed in {ENTRY_POINTS}: geomx itself must be installed (pip install .)", file=sys.stderr
        )
        return 1
    wide = [max(len(row[column]) for row in rows) for column in range(3)]
    for group, name, by, wrong in rows:
        note = f"  BROKEN: {wrong}" if wrong else ""
        print(f"{group:{wide[0]}}  {name:{wide[1]}}  {by:{wide[2]}}{note}".rstrip())
    return 1 if any(wrong for *_, wrong in rows) else 0


if __name__ == "__main__":
    takes_no_words("plugins", __doc__)
    sys.exit(main())
