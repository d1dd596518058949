"""Rules that look at more than one option, and the ways between a Config and plain data."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from geomx import plugins
from geomx.config.root import DEFAULTS, MANY, Config
from geomx.config.techniques import Optimizer
from geomx.config.topology import parties
from geomx.errors import ConfigError, Forbidden
from geomx.options import build, check, fields_of, shared
from geomx.spec import setting


def load(given: dict[str, Any]) -> Config:
    """A Config from what `geomx.options.plain` made of one; what is missing holds its default. Raises ConfigError."""
    values = dict(given)
    for group, default in DEFAULTS.items():
        if group in MANY:
            chosen = values.get(group) or {default: {}}
            values[group] = {name: plugins.options(group, {**o, "name": name}) for name, o in chosen.items()}
            for options in values[group].values():
                del options.name
        else:
            values[group] = plugins.options(group, values.get(group) or {"name": default})
    config: Config = build(Config, values, "config")
    return config


def judge(config: Config) -> None:
    """Whatever can be refused before a run starts is refused here: ConfigError, or Forbidden for combinations."""
    check(config)
    parties(config.topology)
    _check_optimizer(config.sync.optimizer)
    _check_deterministic(config)
    _check_sync(config)
    _check_occupants(config)
    _check_prefixes(config)
    _check_network(config)
    _check_script(config)
    _check_declared(config)
    _check_trace(config.trace.rounds)


def check_here(config: Config) -> None:
    """Where all nodes run on this machine, what they will need is looked for before any is started: files, an optimizer
    that MXNet has to make. An option class with `check_here()` says what. Raises ConfigError."""
    if getattr(config.launcher, "exec_prefix", {}) or config.topology.hosts:
        return
    for options in (config.task, config.sync.optimizer, config.topology):
        if hasattr(options, "check_here"):
            options.check_here()


def settings(config: Config) -> dict[str, str]:
    """The run's settings as every node is told them; texts as in `geomx.spec`."""
    sync = {k: v for k, v in shared(config.sync).items() if k != "optimizer"}
    bound = getattr(config.topology, "bigarray_bound", None)
    found = {
        "compression": shared(config.compression),
        "optimizer": optimizer(config.sync.optimizer),
        "sync": sync,
        "scheduler": {name: shared(o) for name, o in config.scheduler.items()},
        "transport": shared(config.transport),
        "placement": {"by": config.topology.placement, "bigarray_bound": bound},
        "deterministic": config.deterministic,
    }
    return {name: setting(value) for name, value in found.items()}


def explicit(config: Config) -> dict[str, str]:
    """`settings` without those that hold their default: what a script may still decide. The optimizer's default is
    that of the chosen sync."""
    default = settings(load({}))
    default["optimizer"] = settings(load({"sync": {"name": config.sync.name}}))["optimizer"]
    return {name: value for name, value in settings(config).items() if default[name] != value}


def optimizer(options: Optimizer) -> dict[str, Any] | str:
    """Name and parameters that count for it, or "none" where workers hold the optimizer."""
    if options.where == "worker":
        return "none"
    used = {name: getattr(options, name) for name in options.used.get(options.name, ("learning_rate", "wd"))}
    return {"name": options.name, **used, **options.extra}


def chosen(config: Config) -> Iterator[tuple[str, Any]]:
    """("compression=fp16", options) for each choice."""
    for group, options in vars(config).items():
        if group in MANY:
            yield from ((f"{group}={name}", o) for name, o in options.items())
        elif hasattr(options, "name"):
            yield f"{group}={options.name}", options


def _check_optimizer(options: Optimizer) -> None:
    known = fields_of(options)
    if double := sorted(options.extra.keys() & known.keys()):
        raise ConfigError(f"sync.optimizer.extra.{double[0]}: is an option of its own, sync.optimizer.{double[0]}")
    if not options.name.isidentifier():
        raise ConfigError(f"sync.optimizer.name: {options.name!r} given, allowed is a word such as adam, sgd, dcasgd")


def _check_sync(config: Config) -> None:
    if getattr(config.sync, "name", "") == "mixed" and config.sync.optimizer.where != "server":
        raise Forbidden(
            "sync=mixed does not go with sync.optimizer.where=worker: parties that don't wait for each other share "
            "weights, not sums; use sync.optimizer.where=server"
        )


def _check_deterministic(config: Config) -> None:
    if not config.deterministic:
        return
    if getattr(config.sync, "name", "") == "mixed":
        raise Forbidden("deterministic=true does not go with sync=mixed: who comes first is chance; use sync=fsa")
    for name, options in config.scheduler.items():
        if "overlay" in getattr(options, "fills", ()):
            raise Forbidden(
                f"deterministic=true does not go with scheduler={name}: relays add in the order of arrival; "
                "use scheduler=fifo"
            )
    if getattr(config.transport, "lossy", False):
        raise Forbidden(
            f"deterministic=true does not go with transport={config.transport.name}: what is lost is chance; "
            "use transport=zmq"
        )


def _check_occupants(config: Config) -> None:
    """One occupant a place."""
    by_place: dict[str, str] = {}
    for name, options in config.scheduler.items():
        for place in getattr(options, "fills", ("scheduler",)):
            if place in by_place:
                raise Forbidden(f"scheduler={by_place[place]} does not go with scheduler={name}: both are the {place}")
            by_place[place] = name
    if "overlay" in by_place and (why := getattr(config.transport, "unmergeable", "")):
        name = config.transport.name
        raise Forbidden(f"scheduler={by_place['overlay']} does not go with transport={name} as it is set: {why}")


def _check_prefixes(config: Config) -> None:
    known = ["central", *(p.name for p in parties(config.topology))]
    if unknown := sorted(getattr(config.launcher, "exec_prefix", {}).keys() - set(known)):
        raise ConfigError(f"launcher.exec_prefix.{unknown[0]}: no such party; there are: {', '.join(known)}")


def _check_network(config: Config) -> None:
    """What the engine can't give is refused, not ignored."""
    from geomx.wan.plan import resolve  # which needs this package's dataclasses

    wan = resolve(config.network, config.topology)
    network, launcher = f"network={config.network.name}", config.launcher
    if wan.is_plain or getattr(launcher, "engine", "shaper") != "shaper":
        return
    if wan.is_lossy and not getattr(config.transport, "datagrams", False):
        raise Forbidden(
            f"{network} with loss does not go with launcher={launcher.name}: what streams make of lost packets needs "
            "the kernel's TCP; use launcher=netns, a transport with datagrams, or no loss (network.loss=0)"
        )
    if wan.priorities:
        raise Forbidden(
            f"network.priorities=true does not go with launcher={launcher.name}: its links know messages, not packets "
            "with priorities; use launcher=netns"
        )
    if getattr(launcher, "control_host", ""):
        raise Forbidden(
            f"{network} does not go with launcher.control_host: the user-space shaper joins processes of one machine; "
            "use network=none with nodes elsewhere, or leave control_host empty"
        )


def _check_script(config: Config) -> None:
    script = getattr(config.task, "script", None)
    if script is not None and not Path(script).is_file():
        raise ConfigError(f"task.script: {script!r} given, there is no such file in {Path.cwd()}")


def _check_trace(rounds: list[int]) -> None:
    if rounds and not (len(rounds) == 2 and 1 <= rounds[0] <= rounds[1]):
        raise ConfigError(f"trace.rounds: {rounds} given, allowed is [first, last], of which the first round is 1")


def _check_declared(config: Config) -> None:
    """Plugins declare what they don't go with and what they need; nothing here knows one by name."""
    choices = dict(chosen(config))
    for choice, options in choices.items():
        for other, reason in getattr(options, "forbids", {}).items():
            if other in choices:
                raise Forbidden(f"{choice} does not go with {other}: {reason}")
        for other, reason in getattr(options, "needs", {}).items():
            if other not in choices:
                raise Forbidden(f"{choice} needs {other}: {reason}")
