"""What one process is told: the contract between whoever starts a node (launcher, environment) and the node itself.

A `NodeSpec` is all that a node knows when it starts. The launcher writes one for each node and hands it over as one
line of JSON; `geomx.env.node_spec(os.environ)` makes one from the seed's DMLC_* variables. Nothing here imports the
core, Hydra or a framework.

The node's life, in `geomx.node`:

    built = geomx.node.build(spec)          built.node: a _core.Node with policies and updaters set
    built.start()                           node.start(), then what the united settings change
    schedulers and servers: built.node.serve()
    workers:                geomx.train.run_worker(spec, built.node, emit)

`geomx.train.run_worker(spec, node, emit) -> dict` trains to the end and calls `node.leave()` before it returns
`{"weights_hash": str, "accuracy": float | None, "loss": float, "rounds": int, "samples": int}`. After each round it
calls `emit("round", row)`, row as in `ROUND_FIELDS`. It may also `emit("note", {"line": "..."})`, shown to the user.
It doesn't close the node; an exception that it raises fails the run and is shown with its traceback's last line.

Settings (`NodeSpec.settings`, compared between all nodes by the core) are canonical JSON made by `setting()`:

    compression  {"name": "none"}; {"name": "fp16", "format": "float16", ...}: the plugin's name and its options
    optimizer    "none" (the optimizer is on the workers), or {"name": "adam", "learning_rate": 0.001, ...}
    sync         {"name": "fsa"}; {"name": "mixed", "staleness": 8}
    scheduler    {"fifo": {"credit_kb": 0, "part_elements": 262144}}: one member for each plugin that was chosen
    transport    {"name": "zmq"}
    placement    {"bigarray_bound": 1000000}
    deterministic  true or false

`_core.Node.configure("compression" | "optimizer", value)` takes the same texts.

Code behind a choice. The dataclass that a choice of `task`, `framework`, `launcher` or `tracking` offers as its entry
point holds options only; where its code is, says a class variable `target: ClassVar[str] = "module:function"`.
`geomx.plugins.options(group, dict)` turns a part of `NodeSpec.config` back into that dataclass and
`geomx.plugins.target(options)` imports the function. Built in:

    task.<name>       geomx.tasks.<name>:make(options) -> task             (seed, split: see geomx.config.task)
    framework.<name>  geomx.frameworks.<name>:make(options) -> adapter     (mxnet, numpy)
    updaters by name  geomx.updaters:make(text) -> update(key, offset, gradient, weight), asked on global servers for
                      optimizers that the core lacks (text: the setting "optimizer")
"""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, get_origin

from geomx.errors import ConfigError

ROLES = ("scheduler", "local_server", "global_server", "worker")

ROUND_FIELDS = {
    "step": "training step, from 1",
    "time": "seconds since this worker began to train",
    "loss": "mean over the step's samples",
    "accuracy": "on the test set, from 0 to 1; only where it was evaluated",
    "samples": "of this step, on this worker",
    "compute_s": "forward and backward of this step, while no value was awaited",
    "wait_s": "waited for values in this step",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainSpec:
    """How a node joins one domain. Port 0: only for the domain's own scheduler, which then takes a free one."""

    scheduler_host: str
    scheduler_port: int
    num_servers: int
    num_members: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSpec:
    role: str  # one of ROLES; a scheduler serves the one domain that it is given
    name: str = ""  # as in logs and messages: global_scheduler, global_server0, a.scheduler, a.server, a.worker0
    party: str = ""
    party_rank: int = -1  # order of parties; -1: by name
    rank: int = -1  # order in the domain; -1: by host and process id
    is_master: bool = False
    is_central: bool = False
    central_trains: bool = False
    lan: DomainSpec | None = None
    wan: DomainSpec | None = None
    host: str = ""  # the address that others reach this node by; empty: found by the route to the scheduler
    port: int = 0
    token: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    join_s: float = 60.0
    wait_s: float = 600.0
    death_s: float = 12.0
    slow_s: float = 10.0
    local: bool = True  # shared memory between nodes of one host
    reachable: bool = True  # members of other parties can connect to this node
    control: str = ""  # ZeroMQ address of the launcher; empty: started by hand
    links: str = ""  # file that nodes shape the WAN through, as the config's network says; empty: it is as it is
    log: str = ""  # file that this node's output goes to, for messages
    config: dict[str, Any] = field(default_factory=dict)  # resolved, plain; groups that are missing hold their default
    seed: int = 1
    deterministic: bool = False
    world: int = 0  # training workers of all parties, 0: not known here
    world_rank: int = -1  # this worker's place among them: which share of the data is its own; -1: not known here

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ConfigError(f"role: {self.role!r} given, allowed is one of {', '.join(ROLES)}")
        if self.lan is None and self.wan is None:
            raise ConfigError(f"{self.role}: neither a LAN nor a WAN domain given, a node needs one")

    @property
    def observes(self) -> bool:
        """A master worker that configures and initialises, but contributes nothing."""
        return self.is_master and self.is_central and not self.central_trains

    @property
    def title(self) -> str:
        """'worker 1 of party a', as used in sentences."""
        return "master worker" if self.observes else title(self.role, self.party, self.rank, self.lan is None)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def title(role: str, party: str, rank: int, wan_only: bool = False) -> str:
    """How a sentence calls a node."""
    number = f" {rank}" if rank >= 0 and role in ("worker", "global_server") else ""
    if role == "global_server" or (role == "scheduler" and wan_only):
        return f"global {role.removeprefix('global_')}{number}"
    return f"{role.replace('_', ' ')}{number} of party {party}" if party else f"{role.replace('_', ' ')}{number}"


def said_by(title: str, sentence: str) -> str:
    """'worker 1 of party a: it says this', once: many of the core's sentences begin with who says them."""
    return sentence if sentence.startswith((f"{title}:", f"{title} of ")) else f"{title}: {sentence}"


def setting(value: Any) -> str:
    """The one text of a setting: equal settings are equal texts. A word stands for itself."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))


def from_json(text: str) -> NodeSpec:
    """Raises ConfigError with a sentence for whatever isn't a node spec."""
    try:
        given = json.loads(text)
    except ValueError as e:
        raise ConfigError(f"node spec: not JSON: {e}") from None
    if not isinstance(given, dict):
        raise ConfigError(f"node spec: a JSON object is needed, {type(given).__name__} given")
    given = dict(given)
    for domain in ("lan", "wan"):
        if given.get(domain) is not None:
            given[domain] = _checked(DomainSpec, given[domain], f"node spec: {domain}")
    made: NodeSpec = _checked(NodeSpec, given, "node spec")
    return made


def _checked(cls: Any, given: Any, where: str) -> Any:
    if not isinstance(given, dict):
        raise ConfigError(f"{where}: an object is needed, {given!r} given")
    declared = {f.name: f for f in dataclasses.fields(cls)}
    if unknown := sorted(given.keys() - declared.keys()):
        raise ConfigError(f"{where}: no such field: {', '.join(unknown)}; there are: {', '.join(declared)}")
    needed = {n for n, f in declared.items() if f.default is f.default_factory is dataclasses.MISSING}
    if missing := sorted(needed - given.keys()):
        raise ConfigError(f"{where}: a value is required: {', '.join(missing)}")
    for name, value in given.items():
        _check_type(declared[name], value, f"{where}: {name}")
    return cls(**given)


_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a text"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
}


def _check_type(declared: Any, value: Any, where: str) -> None:
    otherwise = ((dict,), "an object") if get_origin(declared.type) is dict else ((object,), "")
    types, words = _KINDS.get(declared.type, otherwise)
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types and object not in types):
        raise ConfigError(f"{where}: {value!r} given, allowed is {words}")
