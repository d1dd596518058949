"""From a script to a joined node: whoever starts the script says by environment what this process is.

GEOMX_SPEC names a file with a NodeSpec as JSON (a launcher writes it); without it the seed's DMLC_* variables count.
"""

import dataclasses
import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from geomx import env, exits
from geomx._core import Node
from geomx.errors import ConfigError
from geomx.kv import Store
from geomx.lifeline import end_on_interrupt
from geomx.spec import NodeSpec, from_json, setting

if TYPE_CHECKING:
    from geomx.node import Built

S = TypeVar("S", bound=Store)


def spec_of(environ: Mapping[str, str], kind: str = "dist_sync") -> NodeSpec:
    """This process as a worker. Raises ConfigError naming the variable, what was given and what is allowed."""
    path = environ.get("GEOMX_SPEC")
    spec = _read(Path(path)) if path else env.node_spec(environ)
    if spec.role != "worker":
        raise ConfigError(
            f"this process is to be a {spec.role.replace('_', ' ')}, which runs no script: start it with "
            "python -m geomx.node"
        )
    return with_kind(spec, kind)


def with_kind(spec: NodeSpec, kind: str) -> NodeSpec:
    """A store's type is an explicit setting only where it says async: the seed's workers say dist_sync in any mode."""
    if "async" not in kind:
        return spec
    given = spec.settings.get("sync")
    if given is None:
        return dataclasses.replace(spec, settings={**spec.settings, "sync": setting({"name": "mixed"})})
    if json.loads(given).get("name") == "fsa":
        raise ConfigError(
            f"the script asks for {kind}, the configuration says sync=fsa: set sync=mixed, or create dist_sync"
        )
    return spec


def store(kind: str = "dist_sync") -> Store:
    """Joins as this process's environment says; the store takes numpy's arrays. The script's normal end is a leave, an
    exception a failure of the run."""
    return joined(Store, kind)


def joined(make: Callable[[Node, NodeSpec, str, Callable[[], None]], S], kind: str) -> S:
    """make(node, spec, kind, closer) with a node that has joined as this process's environment says. Raises what
    `Node.start` raises, and ConfigError for what is refused here."""
    spec = spec_of(os.environ, kind)
    built = join(spec)
    made = make(built.node, agreed(spec, built), kind, built.close)
    exits.watch(made)
    return made


def agreed(spec: NodeSpec, built: "Built") -> NodeSpec:
    """What a worker knows once it has joined: the run's settings, and whether the central party trains, which by hand
    only its servers are told."""
    trains = built.node.trains
    return dataclasses.replace(
        spec, settings=built.settings, central_trains=trains, is_central=spec.is_central or not trains
    )


def join(spec: NodeSpec) -> "Built":
    """A started node. After Ctrl-C it fails the run even if Python doesn't get to raise KeyboardInterrupt."""
    from geomx import node

    built = node.build(spec)
    if threading.current_thread() is threading.main_thread():
        end_on_interrupt(built.node.fail)
    try:
        built.start()
        _check_world(spec, built.node)
    except BaseException:
        built.close()
        raise
    return built


def _check_world(spec: NodeSpec, node: Node) -> None:
    if spec.world and spec.world != node.num_all_workers:
        sentence = (
            f"{spec.title}: DMLC_NUM_ALL_WORKER: {spec.world} given, but {node.num_all_workers} workers of all "
            "parties train"
        )
        node.fail(sentence)
        raise ConfigError(sentence)


def _read(path: Path) -> NodeSpec:
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ConfigError(f"GEOMX_SPEC: {path} can't be read: {e.strerror}") from None
