"""One role in one process: `python -m geomx.node [SPECFILE | -]`.

The node spec (geomx.spec) comes from a file, or with - as the first line of standard input, which then must stay open
for as long as the node shall live; without an argument the seed's DMLC_* variables say what this node is. Exit codes:
0 finished, 1 the run failed, 2 the configuration is refused, 130 interrupted.
"""

import argparse
import contextlib
import logging
import os
import socket
import sys
import tempfile
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from geomx import _core, exits
from geomx.agreed import Agreed
from geomx.config import judge, load
from geomx.control import Reporter
from geomx.counting import Counting
from geomx.errors import ConfigError, RunFailed, Told
from geomx.lifeline import end_on_interrupt, end_with_pipe
from geomx.plugins import imported
from geomx.policies import Policies
from geomx.spec import DomainSpec, NodeSpec, from_json, said_by
from geomx.wan.plan import resolve
from geomx.wan.shaper import shape

log = logging.getLogger("geomx.node")


class Built:
    """A node that is not started yet, and what its start and end mean besides."""

    def __init__(self, node: _core.Node, agreed: Agreed, reporter: Reporter) -> None:
        self.node, self._agreed = node, agreed
        self.settings: dict[str, str] = {}  # what the run has agreed on, once it is joined
        self._counting = Counting(node, reporter)
        self._reporter = reporter

    def start(self) -> dict[str, str]:
        """Joins; what the whole run has agreed on is this node's configuration from here on. From now on the
        launcher, if there is one, is told where this node listens and what it counts. Raises what the core's start()
        does, and ConfigError where what was agreed on doesn't go together."""
        self._counting.start()
        self.settings = self.node.start()
        try:
            judge(self._agreed.config)
        except ConfigError as e:
            self.node.fail(str(e))
            raise
        if self.settings:  # none: defaults, or a scheduler, which only unites what others bring
            log.info("agreed by all: %s", "; ".join(f"{n}={value}" for n, value in sorted(self.settings.items())))
        self._reporter.send("joined", {"name": self.node.name, "rank": self.node.rank})
        return self.settings

    def close(self) -> None:
        """Tells the last counters and closes the node."""
        self._counting.stop()
        self.node.close()


def build(spec: NodeSpec, reporter: Reporter | None = None) -> Built:
    """A node with policies and updaters set. reporter: the process's own, else one is made for what start() and
    close() tell. Raises ConfigError."""
    config = load(spec.config)
    judge(config)
    node = _node(spec)
    if spec.links:
        node.shape_wan(shape(resolve(config.network, config.topology), spec.links, spec.party, _seed_of(spec)))
    if config.trace.rounds:
        first, last = config.trace.rounds
        node.trace(first, last, config.trace.max_spans)
    policies, agreed = Policies(node, config, spec), Agreed(config)

    def configure(what: str, value: str) -> None:
        policies.use(agreed.take(what, value))
        log.info("set for all: %s=%s", what, value)

    node.on_configure(configure)
    reporter = reporter or Reporter(spec)
    node.on_log(_teller(reporter))
    if spec.role == "global_server":
        node.set_updater(_updater)
    return Built(node, agreed, reporter)


def run(spec: NodeSpec, reporter: Reporter) -> int:
    """Runs a node to its end and tells the launcher how it went. Returns the exit code."""
    reporter.send("hello", {"pid": os.getpid(), "host": socket.gethostname()})
    made: list[Built] = []
    try:
        result = _live(spec, reporter, made)
        reporter.send("done", result)
        return 0
    except KeyboardInterrupt:
        _tell_others(made, f"{spec.title} was interrupted")
        reporter.send("failed", {"kind": "interrupted", "sentence": "interrupted", "traceback": ""})
        return 130
    except Exception as e:
        heard = _heard(made)
        kind = _kind(e, heard)
        text = heard if heard and kind == "peer" else sentence(e)
        log.error("%s", said_by(spec.title, text), exc_info=None if isinstance(e, Told | _core.Error) else e)
        reporter.send("failed", {"kind": kind, "sentence": text, "traceback": traceback.format_exc()})
        _tell_others(made, said_by(spec.title, text))
        return 2 if kind == "config" else 1
    finally:
        with contextlib.suppress(Exception):
            made[0].close()


def sentence(e: BaseException) -> str:
    """An exception as the last line of its traceback, or its message where that is a sentence for users."""
    if isinstance(e, Told | _core.Error | _core.Timeout):
        return str(e)
    return f"{type(e).__name__}: {str(e).strip()}".removesuffix(": ")


def _live(spec: NodeSpec, reporter: Reporter, made: list[Built]) -> dict[str, Any]:
    if spec.role == "worker" and (script := spec.config.get("task", {}).get("script")):
        return _run_script(spec, script, spec.config["task"].get("arguments", []))
    built = build(spec, reporter)
    made.append(built)
    end_on_interrupt(built.node.fail)
    built.start()
    if spec.role == "worker":
        from geomx.train import run_worker  # heavy: only workers pay

        return run_worker(spec, built.node, reporter.send)
    built.node.serve()
    return {}


def _run_script(spec: NodeSpec, script: str, arguments: list[str]) -> dict[str, Any]:
    """A user's script is the worker: its store joins, by the node spec that GEOMX_SPEC names."""
    from geomx import exec as own_script

    with tempfile.NamedTemporaryFile("w", prefix="geomx-", suffix=".json") as file:  # readable by this user only
        file.write(spec.to_json())
        file.flush()
        os.environ["GEOMX_SPEC"] = file.name
        end = own_script.run([script, *arguments])
    if end.code == 130:
        raise KeyboardInterrupt
    if end.error is not None:
        raise RunFailed(f"{script}: {sentence(end.error)}") from end.error
    if end.code:
        raise RunFailed(f"{script} ended with exit code {end.code}; its log has the reason")
    return {}


def _node(spec: NodeSpec) -> _core.Node:
    return _core.Node(
        role=spec.role,
        party=spec.party,
        party_rank=spec.party_rank,
        rank=spec.rank,
        is_master=spec.is_master,
        central_trains=spec.central_trains,
        is_central=spec.is_central,
        lan=_domain(spec.lan),
        wan=_domain(spec.wan),
        host=spec.host,
        port=spec.port,
        token=spec.token,
        settings=spec.settings,
        join_s=spec.join_s,
        wait_s=spec.wait_s,
        death_s=spec.death_s,
        slow_s=spec.slow_s,
        local=spec.local,
        reachable=spec.reachable,
    )


def _domain(spec: DomainSpec | None) -> _core.Domain | None:
    if spec is None:
        return None
    return _core.Domain(
        scheduler_host=spec.scheduler_host,
        scheduler_port=spec.scheduler_port,
        num_servers=spec.num_servers,
        num_members=spec.num_members,
    )


def _seed_of(spec: NodeSpec) -> int:
    """Of this node's own chances: jitter and loss differ between nodes, and are the same in each run."""
    return zlib.crc32(f"{spec.seed} {spec.name}".encode())


def _teller(reporter: Reporter) -> Callable[[int, str], None]:
    """The core's lines go to this node's log; its warnings also to whoever watches the run."""
    core = logging.getLogger("geomx.core")

    def tell(level: int, line: str) -> None:
        core.log(level, "%s", line)
        if level >= logging.WARNING:
            reporter.send("note", {"level": level, "line": line})

    return tell


def _updater(text: str) -> Callable[[int, int, Any, Any], None]:
    """Optimizers that the core lacks; imports MXNet only when one is asked for."""
    update: Callable[[int, int, Any, Any], None] = imported("geomx.updaters:make", "sync.optimizer")(text)
    return update


def _kind(e: BaseException, heard: str | None) -> str:
    """Who is to blame, as far as one node can know: the configuration, the join, a peer, a wait, or itself. heard: see
    `_heard`; a node that had heard isn't the cause, whatever was made of it on the way here."""
    by_class: list[tuple[type[Exception], str]] = [
        (ConfigError, "config"),
        (_core.Refused, "refused"),
        (_core.Timeout, "timeout"),
    ]
    if heard is None:
        by_class.append((_core.Error, "peer"))
    otherwise = "peer" if heard else "own"
    return next((kind for error in _causes(e) for cls, kind in by_class if isinstance(error, cls)), otherwise)


def _causes(e: BaseException | None) -> Iterator[BaseException]:
    """The exception itself first, then what it was raised from."""
    while e is not None:
        yield e
        e = e.__cause__


def _heard(made: list[Built]) -> str | None:
    """With what the run had failed before this node did; "": with nothing; None: nobody here knows."""
    if not made:
        return exits.heard()  # a script's store, if it had one
    with contextlib.suppress(Exception):
        return str(made[0].node.failure)
    return None


def _tell_others(made: list[Built], message: str) -> None:
    with contextlib.suppress(Exception):
        made[0].node.fail(message)


def _read_spec(arguments: Sequence[str] | None) -> NodeSpec:
    parser = argparse.ArgumentParser(prog="python -m geomx.node", description=__doc__.splitlines()[0])
    parser.add_argument("spec", nargs="?", metavar="SPECFILE", help="a node spec; -: from standard input")
    given: str | None = parser.parse_args(arguments).spec
    if given is None:
        return _from_environment()
    if given == "-":
        return _from_pipe()
    try:
        return from_json(Path(given).read_text())
    except OSError as e:
        raise ConfigError(f"node spec {given}: {e.strerror}") from None


def _from_environment() -> NodeSpec:
    from geomx import env

    for line in env.notes(os.environ):
        log.warning("%s", line)
    spec = env.node_spec(os.environ)
    if spec.role == "worker":
        raise ConfigError("DMLC_ROLE: worker given, a worker runs a script: start it with python -m geomx.exec SCRIPT")
    return spec


def _from_pipe() -> NodeSpec:
    """The first line; what follows is never read, its end is the end of this node."""
    line = b""
    while not line.endswith(b"\n") and (piece := os.read(0, 1 << 16)):
        line += piece
    pipe = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # a script that reads its input finds nothing, not the launcher
    os.close(null)
    spec = from_json(line.decode())
    end_with_pipe(pipe)
    return spec


def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        spec = _read_spec(arguments)
    except ConfigError as e:
        print(f"geomx: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    reporter = Reporter(spec)
    try:
        return run(spec, reporter)
    finally:
        reporter.close()


if __name__ == "__main__":
    sys.exit(main())
