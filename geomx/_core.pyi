"""The C++ core as Python sees it. One `Node` is one node of the cluster; several may live in one process.

Every call that waits releases the GIL, has a deadline and raises `Timeout` with a sentence that names who waited for
what. Arrays are C-contiguous and are not copied: the caller leaves one that was pushed unchanged until the ticket is
done. A call whose wait ended at its deadline is still under way, and the node keeps its arrays alive until it is done.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

ABI_VERSION: int

class Error(Exception):
    """The run can't go on, or a call can't be served: a peer died, a key differs between workers. One sentence."""

class Refused(Error):
    """The cluster refused this node while it joined, or a call: a setting, a count, a token. One sentence."""

class Timeout(Error):
    """A wait ended at its deadline. The message names who waited, for what and for whom."""

class Domain:
    """How a node joins one domain (one tier of one party, or the WAN).

    `num_servers` and `num_members` must agree on all its nodes (0: not known here, whatever others say is taken).
    Members are workers in a LAN domain, local servers in the WAN domain, workers in a flat WAN domain.
    """

    def __init__(self, *, scheduler_host: str, scheduler_port: int, num_servers: int, num_members: int) -> None: ...

class WanShape:
    """What the user-space shaper makes of the WAN: numbers as `geomx.wan.plan` resolves them, by party."""

    def __init__(
        self,
        *,
        file: str,  # made by make_wan_links, shared by all nodes of the host
        party: int,  # this node's
        up: Sequence[float],  # bytes/s of each party's access link, towards the others; 0: no limit
        down: Sequence[float],
        queue_bytes: Sequence[float],  # of datagrams, before a link drops them
        paths: Sequence[Sequence[float]],  # [from * parties + to]: delay in us, jitter in us, loss, burst
        trace: Sequence[Sequence[float]],  # rows: at us since the run began, bytes/s, delay in us, loss
        shares: Sequence[Sequence[float]],  # rows: party, at us, share of its rates from then on
        seed: int,
    ) -> None: ...

def make_wan_links(file: str, num_parties: int) -> None:
    """The file through which nodes share access links; its time 0 is now. Raises Refused if it can't be made."""

def probe_wan_shape(
    shape: WanShape, from_party: int, to_party: int, bulk_bytes: int, pings: int, timeout_s: float
) -> tuple[float, float]:
    """(bytes/s, one-way delay in us) that real messages find on a path of this shape. Raises Timeout."""

class Shard:
    """`length` elements from `offset` of a flattened tensor, held by global server `server`."""

    def __init__(self, server: int, offset: int, length: int) -> None: ...
    server: int
    offset: int
    length: int

class Plan:
    """What the authority decides once for a key: where its shards are, and how they are cut into parts."""

    def __init__(self, shards: Sequence[Shard], part_length: int) -> None: ...
    shards: list[Shard]
    part_length: int  # elements; 0: shards are not cut

class CodecChoice:
    """A codec and its parameters (numbers and words)."""

    def __init__(self, name: str = "identity", params: Mapping[str, int | float | str] = ...) -> None: ...
    name: str
    params: dict[str, int | float | str]

class Ticket:
    """One push, pull or push_pull that is under way."""

    @property
    def done(self) -> bool: ...
    def wait(self, timeout_s: float = -1.0) -> None:
        """Returns when done; raises Timeout, or Error when the run failed. Negative: the node's `wait_s`."""

class Node:
    def __init__(
        self,
        *,
        role: str,  # scheduler, local_server, global_server, worker; a scheduler serves the one domain that it is given
        party: str = "",  # name of the party; empty: the party's scheduler's address
        party_rank: int = -1,  # order of parties; -1: by name
        rank: int = -1,  # order within the domain; -1: by host and process id
        is_master: bool = False,  # the master worker
        central_trains: bool = False,  # the central party's workers contribute (said to global servers and workers there)
        is_central: bool = False,  # this node is in the central party
        lan: Domain | None = None,
        wan: Domain | None = None,
        host: str = "",  # the address that others reach this node by; empty: found by the route to the scheduler
        port: int = 0,  # of the first domain; 0: free
        token: str = "",
        settings: Mapping[str, str] = ...,  # options of scope "run" set explicitly here; compared with everybody's
        join_s: float = 60.0,  # until the whole cluster is there
        wait_s: float = 600.0,  # default deadline of calls
        death_s: float = 12.0,  # silence after which a node counts as dead
        slow_s: float = 10.0,  # a round that waits longer than this is warned about, naming who is waited for
        local: bool = True,  # shared memory between nodes of one host
        reachable: bool = True,  # members of other parties can connect to this node
    ) -> None: ...

    # --- set before start -------------------------------------------------------------------------------------
    def shape_wan(self, shape: WanShape) -> None:
        """Messages between parties take as long as these links would make them. Raises Refused without the file."""
    def set_planner(self, plan: Callable[[str, tuple[int, ...], str, int], Plan]) -> None:
        """plan(name, shape, dtype, num_global_servers); asked on the authority only, once a key. What has a method
        announce(list of (name, length, dtype)) is told by it what an init() is about to declare."""
    def set_policy(self, choose: Callable[[str, int, str, str, str], CodecChoice]) -> None:
        """choose(name, length, dtype, tier, direction); tier lan or wan, direction up or down. Asked on every node,
        once a key, after the last configure(); must be pure."""
    def on_configure(self, apply: Callable[[str, str], None]) -> None:
        """apply(what, value): a configure() of any node has arrived here. On the node's own thread."""
    def on_log(self, log: Callable[[int, str], None]) -> None:
        """log(level, line) with logging's levels."""
    def set_updater(self, make: Callable[[str], Callable[[int, int, Any, Any], None]]) -> None:
        """make(spec) -> update(key, offset, gradient, weight): optimizers that the core lacks; weight changes in place.
        spec is what configure("optimizer", spec) carried. Only global servers ask."""
    def set_transport(self, choose: Callable[[], Any]) -> None:
        """choose() -> None, or what names a loaded transport and its parameters (`geomx.api.TransportChoice`); asked
        once, when the run's settings are known."""
    def set_scheduler(
        self, credit: Callable[[str], tuple[int, bool, bool]], rank: Callable[[str, int, int, str], int]
    ) -> None:
        """credit(tier) -> (bytes in flight to a peer, whether what is measured comes on top, whether keys are ranked),
        asked once a tier when the run's settings are known. Not ranked: parts leave as pushes ask, then in the order in
        which they came. Ranked: rank(name, order of declaration, length, tier) -> int32, asked once a key, ranks parts
        whose pushes asked for the same priority; the larger leaves first, in both directions."""

    def set_overlay(self, choose: Callable[[str], Any]) -> None:
        """choose(tier) -> None for the star, or what names a loaded overlay and its parameters
        (`geomx.api.OverlayChoice`); asked once a tier, when the run's settings are known."""

    def load_plugin(self, path: str) -> None:
        """A shared library with `geomx_plugin_v1`; its codecs can then be chosen by name."""
    def add_codec(self, name: str, make: Callable[[dict[str, Any]], Any]) -> None:
        """A codec in Python: make(params) -> an object as described in geomx.api.Codec."""

    # --- joining ----------------------------------------------------------------------------------------------
    def start(self) -> dict[str, str]:
        """Joins; returns the run's settings when the whole deployment is up. Raises Refused, Timeout, Error."""
    @property
    def name(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def trains(self) -> bool:
        """A worker whose pushes count. In the central party its servers say whether its workers do."""
    @property
    def num_workers(self) -> int: ...
    @property
    def global_rank(self) -> int: ...
    @property
    def num_all_workers(self) -> int: ...
    @property
    def party(self) -> str: ...
    @property
    def addresses(self) -> dict[str, str]:
        """domain ("lan", "wan") -> host:port that this node listens on."""

    @property
    def failure(self) -> str:
        """The sentence with which the run has failed, as far as this node has heard; "" while all is well."""

    # --- workers ----------------------------------------------------------------------------------------------
    def configure(self, what: str, value: str, timeout_s: float = -1.0) -> None:
        """what: "optimizer" or "compression"; value: JSON. Returns when all servers have it. Refused when another
        value was given before, or when the authority has already pushed."""
    def key(self, name: str) -> int:
        """The 64-bit identity of a name; integer keys go by their decimal text with a tag of their own."""
    def init(self, names: Sequence[str], arrays: Sequence[NDArray[Any]], timeout_s: float = -1.0) -> None:
        """Declares keys; the authority's arrays are the initial values. Returns when they are declared everywhere."""
    def push(self, names: Sequence[str], arrays: Sequence[NDArray[Any]], priorities: Sequence[int] = ...) -> Ticket: ...
    def pull(self, names: Sequence[str], outs: Sequence[NDArray[Any]], priorities: Sequence[int] = ...) -> Ticket: ...
    def push_pull(
        self,
        names: Sequence[str],
        arrays: Sequence[NDArray[Any]],
        outs: Sequence[NDArray[Any]],
        priorities: Sequence[int] = ...,
    ) -> Ticket: ...
    def push_address(
        self, name: str, address: int, shape: tuple[int, ...], dtype: str, priority: int, done: Callable[[str], None]
    ) -> None:
        """For frameworks with an engine of their own: done(error) is called once, on the node's thread; "" if well."""
    def pull_address(
        self, name: str, address: int, shape: tuple[int, ...], dtype: str, priority: int, done: Callable[[str], None]
    ) -> None: ...
    def barrier(self, world: bool = False, timeout_s: float = -1.0) -> None: ...
    def report(self, name: str, value: float) -> None:
        """A figure that techniques use (the loss)."""
    def leave(self, timeout_s: float = -1.0) -> None:
        """No more batches from here. Returns when all that was pushed has been answered."""

    # --- all --------------------------------------------------------------------------------------------------
    def serve(self) -> None:
        """Schedulers and servers: returns when the job is over, raises Error when it failed."""
    def fail(self, message: str) -> None:
        """Ends the run everywhere with this sentence."""
    def close(self) -> None: ...
    def counters(self) -> dict[str, float]:
        """What this node sent and did so far: "wan.up_bytes", "lan.down_payload_bytes", the same by the wire id of the
        codec that made it ("wan.up_payload_bytes.FP16", ".RAW" without one), "wan.init_bytes",
        "wan.messages", "wan.dropped_parts", "refused_frames", "encode_s", "decode_s", "update_s", "rounds"."""
    def ledger(self) -> dict[str, Any]:
        """The counters item by item, all of one moment. "counters": as above. "sent": (tier, receiver, key, account,
        codec, frames, payload bytes, framing bytes); account: up, down, init or control; key "": bytes of no key, such
        as messages' own headers. "work": (tier, key, seconds to encode up, down, seconds to
        decode up, down, parts that came and were dropped, parts that were not applied elsewhere and went back)."""
    def trace(self, first: int, last: int, capacity: int) -> None:
        """Before start(): spans of these rounds are kept, `capacity` of them in all."""
    def take_trace(self) -> str:
        """Spans since the last call, as lines that geomx.timeline reads; "" if there are none."""

class Codec:
    """A codec outside a node: for tests and benchmarks. A slot keeps what a lane's would, for each direction."""

    def __init__(
        self,
        name: str,
        params: Mapping[str, Any] = ...,
        plugin: str = "",
        make: Callable[[dict[str, Any]], Any] | None = None,
        answer: str = "gradients",
    ) -> None:
        """plugin: the path of a shared library that has it; make: of a codec in Python. answer: what the servers answer
        with, "gradients", "parameters" or "deltas" of them."""
    @property
    def wire_id(self) -> str: ...
    @property
    def keeps_residual(self) -> bool: ...
    @property
    def can_merge(self) -> bool: ...
    @property
    def metrics(self) -> dict[str, float]:
        """What it has counted."""
    def takes(self, dtype: str) -> bool: ...
    def carries(self, content: str) -> bool:
        """gradient, parameter or delta."""
    def encode(self, values: NDArray[Any], slot: int = 0, direction: str = "up") -> bytes:
        """The next round of this slot, as one part."""
    def encode_parts(self, values: NDArray[Any], part_length: int, slot: int = 0, direction: str = "up") -> list[bytes]:
        """The next round of this slot, in parts of so many elements."""
    def decode(self, data: bytes, length: int, dtype: str, slot: int = 0, direction: str = "up") -> NDArray[Any]: ...
    def accumulate(self, data: bytes, into: NDArray[Any], slot: int = 0, direction: str = "up") -> None: ...
    def give_back(
        self, data: bytes, slot: int = 0, part_length: int = 0, part: int = 0, direction: str = "up"
    ) -> None: ...
    def merge(self, pieces: Sequence[bytes], length: int, dtype: str) -> bytes: ...
    def score(self, data: bytes, length: int, dtype: str) -> float: ...
    def max_encoded_size(self, length: int, dtype: str) -> int: ...
    def save(self, slot: int = 0, direction: str = "up") -> bytes: ...
    def load(self, data: bytes, length: int, dtype: str, slot: int = 0, direction: str = "up") -> None: ...

def kernel(name: str, *arrays: NDArray[Any]) -> None:
    """Runs one of the core's kernels on arrays, for tests and benchmarks: add_f32, f32_to_f16, f16_to_f32, ..."""

def parse_message(data: bytes) -> str:
    """The parser of the wire format, for tests: a line that says what the message is, or why it is refused."""

def np_dtype(name: str) -> np.dtype[Any]: ...
