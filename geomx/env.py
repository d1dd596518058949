"""The seed's environment (DMLC_*, MXNET_KVSTORE_*, ENABLE_*, GEOMX_*) as a NodeSpec. The only place that reads it.

Each variable is set on some roles only, as the seed does; the schedulers unite what their members bring. So a setting
is made only of variables that are set here. What a technique's variable asks for is one setting ("transport":
{"name": "dgt"}) and each of its options a setting of its own ("transport.k": "0.8"), because the seed sets them on
different roles; `geomx.node` puts them together once all are known.

Every value is checked: ConfigError names the variable, what was given and what is allowed.
"""

import difflib
import fcntl
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import Any

from geomx.errors import ConfigError
from geomx.spec import DomainSpec, NodeSpec, setting

Environ = Mapping[str, str]


@dataclass(frozen=True)
class _Kind:
    """How a variable's text is read: `allowed` completes "allowed is"."""

    read: Callable[[str], Any]
    allowed: str
    test: Callable[[Any], bool] = lambda value: True
    meaning: str = ""

    def means(self, meaning: str) -> "_Kind":
        return replace(self, meaning=meaning)


def _whole(low: int, high: int | None = None) -> _Kind:
    words = f"a whole number from {low}" + ("" if high is None else f" to {high}")
    return _Kind(int, words, lambda v: v >= low and (high is None or v <= high))


def _number(allowed: str, test: Callable[[float], bool]) -> _Kind:
    return _Kind(float, f"a number {allowed}", test)


def _size(text: str) -> int:
    """Sizes are written as 1e3 too."""
    value = float(text)
    if value != int(value):
        raise ValueError(text)
    return int(value)


def _one_of(*words: str) -> _Kind:
    return _Kind(str, f"one of {', '.join(words)}", lambda v: v in words)


_FLAG = _Kind({"0": False, "1": True}.__getitem__, "0 or 1")
_PORT = _whole(1, 65535)
_COUNT = _whole(1)
_ELEMENTS = _Kind(_size, "a whole number from 0", lambda v: v >= 0)
_SECONDS = _number("of seconds above 0", lambda v: 0 < v < float("inf"))
_HOST = _Kind(str, "a host name or an address, without spaces", lambda v: bool(v) and not any(c.isspace() for c in v))
_SHARE = _number("above 0 and at most 1", lambda v: 0 < v <= 1)
_ANY = _Kind(str, "a text")

_VARIABLES: dict[str, _Kind] = {
    "DMLC_ROLE": _one_of("scheduler", "server", "worker").means("what this process is in its party"),
    "DMLC_ROLE_GLOBAL": _one_of("global_scheduler", "global_server").means(
        "what it is between parties; a global scheduler sets it alone, a global server beside DMLC_ROLE=server"
    ),
    "DMLC_ROLE_MASTER_WORKER": _FLAG.means("this worker of the central party configures and initialises"),
    "DMLC_PS_ROOT_URI": _HOST.means("where the party's scheduler is"),
    "DMLC_PS_ROOT_PORT": _PORT.means("the port that it listens on"),
    "DMLC_NUM_SERVER": _COUNT.means("servers of the party: 1, in the central party as many as DMLC_NUM_GLOBAL_SERVER"),
    "DMLC_NUM_WORKER": _COUNT.means("workers of the party"),
    "DMLC_PS_GLOBAL_ROOT_URI": _HOST.means("where the global scheduler is"),
    "DMLC_PS_GLOBAL_ROOT_PORT": _PORT.means("the port that it listens on"),
    "DMLC_NUM_GLOBAL_SERVER": _COUNT.means("global servers"),
    "DMLC_NUM_GLOBAL_WORKER": _COUNT.means("parties whose local servers push to them"),
    "DMLC_NUM_ALL_WORKER": _COUNT.means("workers of all parties that train; checked when the store is made"),
    "DMLC_ENABLE_CENTRAL_WORKER": _FLAG.means("workers of the central party train; needed on global servers only"),
    "DMLC_INTERFACE": _HOST.means(
        "network card, or the beginning of its name, whose address others reach this node by"
    ),
    "DMLC_NODE_HOST": _HOST.means("address that others reach this node by; unset: that of the route to the scheduler"),
    "PORT": _PORT.means("port that this node listens on; unset: a free one. A scheduler listens on its ROOT_PORT"),
    "DMLC_LOCAL": _FLAG.means("shared memory between nodes of one host; 0: TCP for them too"),
    "DMLC_USE_KUBERNETES": _FLAG,
    "DMLC_RANK": _whole(0),
    "DMLC_GLOBAL_RANK": _whole(0),
    "PS_VERBOSE": _whole(0, 2),
    "PS_RESEND": _FLAG,
    "PS_RESEND_TIMEOUT": _whole(0),
    "PS_DROP_MSG": _whole(0, 100).means("only 0 is taken: loss belongs to the network"),
    "PS_HEARTBEAT_INTERVAL": _whole(0),
    "PS_HEARTBEAT_TIMEOUT": _whole(0).means("seconds; as GEOMX_DEATH_S, which goes before it; 0: not set"),
    "MXNET_KVSTORE_BIGARRAY_BOUND": _Kind(_size, "a whole number from 1", lambda v: v >= 1).means(
        "a tensor with more elements is spread over all global servers"
    ),
    "MXNET_KVSTORE_SIZE_LOWER_BOUND": _ELEMENTS.means("a tensor with more elements is large"),
    "MXNET_KVSTORE_USE_HFA": _FLAG.means("asks for sync=hfa, which must be installed"),
    "MXNET_KVSTORE_HFA_K1": _COUNT.means("local steps between two rounds of a party"),
    "MXNET_KVSTORE_HFA_K2": _COUNT.means("rounds of a party between two between parties"),
    "ENABLE_DGT": _whole(0, 3).means("0: off; 1: datagrams; 2: the stream; 3: the stream, in 4 bits"),
    "DMLC_UDP_CHANNEL_NUM": _whole(1, 8).means("lossy channels"),
    "DMLC_K": _SHARE.means("share of a tensor's parts that is reliable"),
    "DMLC_K_MIN": _SHARE.means("what an adaptive share doesn't fall below"),
    "ADAPTIVE_K_FLAG": _FLAG.means("the share falls with the loss that workers report"),
    "DGT_CONTRIBUTION_ALPHA": _number("from 0 and below 1", lambda v: 0 <= v < 1).means(
        "weight of the past in a part's contribution"
    ),
    "DGT_CONTRI_ALPHA": _number("from 0 and below 1", lambda v: 0 <= v < 1).means("the same, by its older name"),
    "DGT_BLOCK_SIZE": _whole(4).means("bytes of a part, about"),
    "DGT_INFO": _FLAG,
    "ENABLE_INTER_TS": _FLAG.means("TSEngine between parties"),
    "ENABLE_INTRA_TS": _FLAG.means("TSEngine inside parties"),
    "MAX_GREED_RATE_TS": _number("from 0 to 1", lambda v: 0 <= v <= 1).means("how often the best known way is taken"),
    "ENABLE_P3": _FLAG.means("parts leave by priority and layer"),
    "GEOMX_TOKEN": _ANY.means("a secret of the run: on all nodes, or on none if all are on one host"),
    "GEOMX_SPEC": _ANY.means("file with a node spec, in the place of all others; the launcher sets it"),
    "GEOMX_HOME": _ANY.means("folder for what outlives a run, such as MLflow's store; unset: ~/.geomx"),
    "GEOMX_PARTY": _HOST.means("the party's name, for logs and messages"),
    "GEOMX_PARTY_RANK": _whole(0).means("order of the parties; unset: by name"),
    "GEOMX_RANK": _whole(0).means("order inside the party; unset: by host and process id"),
    "GEOMX_REACHABLE": _FLAG.means(
        "others can connect to this node; 0 on a local server: no overlay chooses it as a receiver"
    ),
    "GEOMX_SEED": _whole(0).means("seed of data order and initial weights"),
    "GEOMX_DETERMINISTIC": _FLAG.means("sums are added in one stated order"),
    "GEOMX_JOIN_S": _SECONDS.means("until the whole cluster is there"),
    "GEOMX_WAIT_S": _SECONDS.means("deadline of calls that wait"),
    "GEOMX_DEATH_S": _SECONDS.means("silence after which a node counts as dead"),
    "GEOMX_SLOW_S": _SECONDS.means("a wait that is longer is warned about"),
}
_NO_EFFECT = {
    "PS_VERBOSE": "each line of the logs has a level",
    "DMLC_USE_KUBERNETES": "schedulers listen on all addresses",
    "DMLC_RANK": "it is the seed's own output; GEOMX_RANK chooses a rank",
    "DMLC_GLOBAL_RANK": "it is the seed's own output; GEOMX_RANK chooses a rank",
    "PS_RESEND": "nothing is lost on a reliable transport",
    "PS_RESEND_TIMEOUT": "nothing is lost on a reliable transport",
    "PS_HEARTBEAT_INTERVAL": "heartbeats are always on",
    "DGT_INFO": "counters are in the run's metrics",
}
_PREFIXES = ("DMLC_", "GEOMX_", "ENABLE_", "DGT_", "MXNET_KVSTORE_HFA")
_DGT_PROTOCOLS = {1: "udp", 2: "tcp", 3: "tcp4bit"}
# What an option's variable asks for, counts only where one of these asks for its technique.
_TECHNIQUES = {
    "transport.": ("ENABLE_DGT",),
    "scheduler.tsengine.": ("ENABLE_INTER_TS", "ENABLE_INTRA_TS"),
    "sync.": ("MXNET_KVSTORE_USE_HFA",),
}
# variable -> setting of its own, for options of a technique that another variable chooses
_OPTIONS = {
    "DMLC_UDP_CHANNEL_NUM": "transport.channels",
    "DMLC_K": "transport.k",
    "DMLC_K_MIN": "transport.k_min",
    "ADAPTIVE_K_FLAG": "transport.adaptive_k",
    "DGT_CONTRI_ALPHA": "transport.alpha",  # as the technique's own repository calls it
    "DGT_CONTRIBUTION_ALPHA": "transport.alpha",
    "DGT_BLOCK_SIZE": "transport.block_bytes",
    "MAX_GREED_RATE_TS": "scheduler.tsengine.max_greed_rate",
    "ENABLE_INTER_TS": "scheduler.tsengine.inter",
    "ENABLE_INTRA_TS": "scheduler.tsengine.intra",
    "MXNET_KVSTORE_HFA_K1": "sync.k1",
    "MXNET_KVSTORE_HFA_K2": "sync.k2",
    "MXNET_KVSTORE_BIGARRAY_BOUND": "placement.bigarray_bound",  # all that use it must agree
    "MXNET_KVSTORE_SIZE_LOWER_BOUND": "compression.size_lower_bound",
}
_ASKING = {variable for asking in _TECHNIQUES.values() for variable in asking}


def node_spec(environ: Environ, installed: Callable[[str, str], bool] | None = None) -> NodeSpec:
    """What this process is. Raises ConfigError. installed(group, name): whether a plugin is; None: ask the packages."""
    given = _Given(environ)
    role, is_global = _role(given)
    common = _common(given, role, installed or _installed)
    if is_global and role == "scheduler":
        return NodeSpec(role=role, name="global_scheduler", is_central=True, wan=given.wan(), **common)
    if role == "scheduler":
        return NodeSpec(role=role, lan=given.lan(), **common)
    if role == "worker":
        return _worker(given, common)
    central = given.get("DMLC_ENABLE_CENTRAL_WORKER", False)
    if is_global:
        _check_central_servers(given)
        return NodeSpec(
            role="global_server", is_central=True, central_trains=central, lan=given.lan(), wan=given.wan(), **common
        )
    _check_local_server(given)
    return NodeSpec(role="local_server", lan=given.lan(), wan=given.wan(), **common)


@dataclass(frozen=True)
class Variable:
    """What the documentation says of one."""

    name: str
    allowed: str
    meaning: str
    setting: str  # that it brings, where it brings one of its own


def variables() -> list[Variable]:
    """All that are read, in the order of their declaration; those that do nothing say why."""
    return [
        Variable(name, kind.allowed, f"no effect: {_NO_EFFECT[name]}" if name in _NO_EFFECT else kind.meaning,
                 _OPTIONS.get(name, ""))
        for name, kind in _VARIABLES.items()
    ]  # fmt: skip


def notes(environ: Environ) -> list[str]:
    """Lines for the log: variables that are set and do nothing, and names that look misspelt."""
    found = [f"{name} has no effect: {why}" for name, why in _NO_EFFECT.items() if name in environ]
    for name in (n for n in _OPTIONS if environ.get(n, "") not in ("", "0") and n not in _ASKING):
        if (asking := _asking(name)) and all(environ.get(a, "0").strip() in ("", "0") for a in asking):
            found.append(f"{name} has no effect here: {' or '.join(asking)} is not set")
    for name in sorted(environ):
        if name not in _VARIABLES and name.startswith(_PREFIXES):
            close = difflib.get_close_matches(name, _VARIABLES, 1, 0.85)
            if close:
                found.append(f"{name} is not a variable of this project; did you mean {close[0]}?")
    return found


class _Given:
    """Checked access to the variables; empty ones count as not set."""

    def __init__(self, environ: Environ) -> None:
        self._values = {name: self._read(name, environ[name]) for name in _VARIABLES if environ.get(name, "") != ""}

    def get(self, name: str, default: Any = None) -> Any:
        return self._values.get(name, default)

    def has(self, name: str) -> bool:
        return name in self._values

    def need(self, name: str, who: str) -> Any:
        if name not in self._values:
            raise ConfigError(f"{name}: not set, a {who} needs it; allowed is {_VARIABLES[name].allowed}")
        return self._values[name]

    def lan(self, who: str = "node of a party") -> DomainSpec:
        return DomainSpec(
            scheduler_host=self.need("DMLC_PS_ROOT_URI", who),
            scheduler_port=self.need("DMLC_PS_ROOT_PORT", who),
            num_servers=self.need("DMLC_NUM_SERVER", who),
            num_members=self.need("DMLC_NUM_WORKER", who),
        )

    def wan(self, who: str = "node between the parties") -> DomainSpec:
        return DomainSpec(
            scheduler_host=self.need("DMLC_PS_GLOBAL_ROOT_URI", who),
            scheduler_port=self.need("DMLC_PS_GLOBAL_ROOT_PORT", who),
            num_servers=self.need("DMLC_NUM_GLOBAL_SERVER", who),
            num_members=self.need("DMLC_NUM_GLOBAL_WORKER", who),
        )

    @staticmethod
    def _read(name: str, text: str) -> Any:
        kind = _VARIABLES[name]
        try:
            value = kind.read(text.strip())
            if kind.test(value):
                return value
        except (ValueError, KeyError, OverflowError):
            pass
        raise ConfigError(f"{name}: {text!r} given, allowed is {kind.allowed}")


def _role(given: _Given) -> tuple[str, bool]:
    role, globally = given.get("DMLC_ROLE"), given.get("DMLC_ROLE_GLOBAL")
    expected = {"global_scheduler": (None, "scheduler"), "global_server": ("server",), None: (None, "scheduler",
                "server", "worker")}[globally]  # fmt: skip
    if role not in expected:
        raise ConfigError(
            f"DMLC_ROLE: {role or 'nothing'} given together with DMLC_ROLE_GLOBAL={globally}, allowed is "
            + ("server" if globally == "global_server" else "nothing")
        )
    if role is None and globally is None:
        raise ConfigError(
            "DMLC_ROLE: not set, allowed is one of scheduler, server, worker; a global scheduler has "
            "DMLC_ROLE_GLOBAL=global_scheduler instead"
        )
    if given.get("DMLC_ROLE_MASTER_WORKER") and role != "worker":
        raise ConfigError(
            f"DMLC_ROLE_MASTER_WORKER: 1 given on a {globally or role}, allowed only with DMLC_ROLE=worker"
        )
    return ("scheduler" if globally == "global_scheduler" else role), globally is not None


def _worker(given: _Given, common: dict[str, Any]) -> NodeSpec:
    master = given.get("DMLC_ROLE_MASTER_WORKER", False)
    return NodeSpec(
        role="worker",
        is_master=master,
        is_central=master,
        lan=given.lan("worker"),
        central_trains=given.get("DMLC_ENABLE_CENTRAL_WORKER", False),
        world=given.get("DMLC_NUM_ALL_WORKER", 0),
        **common,
    )


def _check_local_server(given: _Given) -> None:
    count = given.need("DMLC_NUM_SERVER", "local server")
    if count != 1:
        raise ConfigError(
            f"DMLC_NUM_SERVER: {count} given on a local server, allowed is 1: a party has one local "
            "server; a global server has DMLC_ROLE_GLOBAL=global_server"
        )


def _check_central_servers(given: _Given) -> None:
    local = given.need("DMLC_NUM_SERVER", "global server")
    across = given.need("DMLC_NUM_GLOBAL_SERVER", "global server")
    if local != across:
        raise ConfigError(
            f"DMLC_NUM_SERVER: {local} given on a global server but DMLC_NUM_GLOBAL_SERVER={across}: in "
            "the central party they are the same servers, so allowed are equal numbers"
        )


def _common(given: _Given, role: str, installed: Callable[[str, str], bool]) -> dict[str, Any]:
    if given.get("PS_DROP_MSG"):
        raise ConfigError(
            f"PS_DROP_MSG: {given.get('PS_DROP_MSG')} given, allowed is 0: loss belongs to the network, "
            "see network= of python -m geomx.run"
        )
    timeouts = {name: given.get(f"GEOMX_{name.upper()}") for name in ("join_s", "wait_s", "death_s", "slow_s")}
    if given.get("PS_HEARTBEAT_TIMEOUT") and timeouts["death_s"] is None:
        timeouts["death_s"] = float(given.get("PS_HEARTBEAT_TIMEOUT"))
    return {
        "party": given.get("GEOMX_PARTY", ""),
        "party_rank": given.get("GEOMX_PARTY_RANK", -1),
        "rank": given.get("GEOMX_RANK", -1),
        "host": _host(given, role),
        "port": given.get("PORT", 0) if role != "scheduler" else 0,
        "token": given.get("GEOMX_TOKEN", ""),
        "local": given.get("DMLC_LOCAL", True),
        "reachable": bool(given.get("GEOMX_REACHABLE", True)),
        "seed": given.get("GEOMX_SEED", 1),
        "deterministic": given.get("GEOMX_DETERMINISTIC", False),
        "settings": _settings(given, installed),
        **{name: value for name, value in timeouts.items() if value is not None},
    }


def _settings(given: _Given, installed: Callable[[str, str], bool]) -> dict[str, str]:
    found: dict[str, Any] = {
        name: given.get(variable) for variable, name in _OPTIONS.items() if _counts(given, variable)
    }
    if protocol := given.get("ENABLE_DGT"):
        _need_plugin("ENABLE_DGT", "transport", "dgt", installed)
        found["transport"] = {"name": "dgt"}
        found["transport.mode"] = _DGT_PROTOCOLS[protocol]
    if given.get("DMLC_NUM_GLOBAL_SERVER", 1) > 1 and installed("topology", "multigps"):
        found["placement.name"] = "multigps"
    schedulers = {}
    if given.get("ENABLE_P3"):
        _need_plugin("ENABLE_P3", "scheduler", "p3", installed)
        schedulers["scheduler.p3"] = True
    for variable in ("ENABLE_INTER_TS", "ENABLE_INTRA_TS"):
        if given.get(variable):
            _need_plugin(variable, "scheduler", "tsengine", installed)
            schedulers["scheduler.tsengine"] = True
    if given.get("MXNET_KVSTORE_USE_HFA"):
        _need_plugin("MXNET_KVSTORE_USE_HFA", "sync", "hfa", installed)
        found["sync"] = {"name": "hfa"}
    if given.has("GEOMX_DETERMINISTIC"):
        found["deterministic"] = given.get("GEOMX_DETERMINISTIC")
    return {name: setting(value) for name, value in sorted((found | schedulers).items())}


def _counts(given: _Given, variable: str) -> bool:
    """An option of a technique that isn't asked for here brings nothing, nor does a technique that is switched off."""
    asking = _asking(variable)
    asked = not asking or any(given.get(a) for a in asking)
    return asked and given.has(variable) and (variable not in _ASKING or given.get(variable))


def _asking(variable: str) -> tuple[str, ...]:
    setting_name = _OPTIONS[variable]
    return next((asking for start, asking in _TECHNIQUES.items() if setting_name.startswith(start)), ())


def _need_plugin(variable: str, group: str, name: str, installed: Callable[[str, str], bool]) -> None:
    if not installed(group, name):
        raise ConfigError(
            f"{variable}: asks for {group}={name}, a plugin that is not installed; install it "
            f"(pip install geomx-{name}) or unset {variable}"
        )


def _installed(group: str, name: str) -> bool:
    return bool(entry_points(group="geomx.plugins", name=f"{group}.{name}"))


def _host(given: _Given, role: str) -> str:
    if role == "scheduler":
        return ""
    if given.has("DMLC_NODE_HOST"):
        return str(given.get("DMLC_NODE_HOST"))
    return _address_of(given.get("DMLC_INTERFACE")) if given.has("DMLC_INTERFACE") else ""


def _address_of(interface: str) -> str:
    """IPv4 address of a network card; like the seed, a name's beginning will do."""
    there = [name for _, name in socket.if_nameindex()]
    for name in sorted(there, key=lambda n: n != interface):
        if name.startswith(interface) and (address := _ipv4(name)):
            return address
    raise ConfigError(
        f"DMLC_INTERFACE: {interface!r} given, allowed is a card of this host with an IPv4 address; "
        f"there are: {', '.join(n for n in there if _ipv4(n)) or 'none'}; or leave it unset"
    )


def _ipv4(interface: str) -> str:
    get_address = 0x8915  # SIOCGIFADDR
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            packed = fcntl.ioctl(s.fileno(), get_address, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(packed[20:24])
