"""What a whole run has agreed on, setting by setting -> the typed configuration that every node works by.

A choice and its options may come apart ("transport": {"name": "dgt"} from one node, "transport.k": "0.8" from another),
because by hand they are set on different roles; here they become one. Texts are as in `geomx.spec`. Pure.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from geomx import plugins
from geomx.config import Config
from geomx.errors import ConfigError
from geomx.options import fields_of, plain

GROUPS = ("compression", "transport", "sync")  # a choice each; scheduler has several, placement none


class Agreed:
    """Takes settings one by one, each as it becomes known; `config` is what they make of the node's own."""

    def __init__(self, config: Config) -> None:
        self._own, self._texts = config, dict[str, str]()
        self.config = config

    def take(self, what: str, value: str) -> Config:
        """Raises ConfigError for a value that isn't allowed, or that contradicts one that was taken before."""
        self._texts[what] = value
        self.config = united(self._own, self._texts)
        return self.config


def united(own: Config, settings: Mapping[str, str]) -> Config:
    """`own` with what the settings change. Options of techniques that nobody chose change nothing."""
    changed: dict[str, Any] = {group: _chosen(own, group, settings) for group in GROUPS}
    changed["scheduler"] = _schedulers(own, settings)
    changed["topology"] = _placed(own.topology, settings)
    if "deterministic" in settings:
        changed["deterministic"] = _value(settings["deterministic"])
    return dataclasses.replace(own, **changed)


def options_of(group: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """Options that are settings of their own: "transport.k" is k of transport."""
    start = f"{group}."
    return {name.removeprefix(start): _value(text) for name, text in settings.items() if name.startswith(start)}


def _chosen(own: Config, group: str, settings: Mapping[str, str]) -> Any:
    options, apart = getattr(own, group), options_of(group, settings)
    if group not in settings and not apart:
        return options
    given = plain(options)
    told = _mapping(group, settings[group]) if group in settings else {}
    same = told.get("name", given["name"]) == given["name"]
    return _built(group, given if same else {}, told, apart)


def _schedulers(own: Config, settings: Mapping[str, str]) -> dict[str, Any]:
    """The setting scheduler says all of them, scheduler.p3 (true) adds one, scheduler.p3.x is its option."""
    apart = options_of("scheduler", settings)
    added = [name for name, value in apart.items() if "." not in name and value is True]
    if "scheduler" not in settings and not added:
        return own.scheduler
    told = _mapping("scheduler", settings["scheduler"]) if "scheduler" in settings else {}
    names = dict.fromkeys([*told, *added])
    found = {}
    for name in names:
        before = plain(own.scheduler[name]) if name in own.scheduler else {}
        own_options = options_of(f"scheduler.{name}", settings)
        found[name] = _built(
            "scheduler", before, {**told.get(name, {}), "name": name}, own_options, f"scheduler.{name}"
        )
        del found[name].name
    return found


def _placed(topology: Any, settings: Mapping[str, str]) -> Any:
    """placement.name (by hand) is a topology whose placement it shall be."""
    told = _mapping("placement", settings["placement"]) if "placement" in settings else {}
    told |= options_of("placement", settings)
    given = plain(topology)
    wanted = given | {name: told[name] for name in ("name", "bigarray_bound") if told.get(name) is not None}
    return topology if wanted == given else plugins.options("topology", wanted)


def _built(
    group: str, given: Mapping[str, Any], told: Mapping[str, Any], apart: Mapping[str, Any], where: str = ""
) -> Any:
    """The choice's own defaults, then what this node was given, then what was agreed on."""
    values = {**given, **told}
    known = fields_of(plugins.load(group, values["name"]))
    for name, value in apart.items():
        if name in told and told[name] != value:
            raise ConfigError(
                f"{where or group}.{name}: {value!r} was set, but {group} asks for {told[name]!r}; set it "
                "once, or the same"
            )
        if name in known:
            values[name] = value
    return plugins.options(group, values)


def _mapping(name: str, text: str) -> dict[str, Any]:
    value = _value(text)
    if not isinstance(value, dict):
        raise ConfigError(f'{name}: {text!r} given, allowed is {{"name": a plugin, ...its options}}')
    return value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a word stands for itself
