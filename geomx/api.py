"""All that a plugin author imports. Light: neither the core nor Hydra nor a framework is loaded by it.

A plugin is a distribution with entry points in the group `geomx.plugins`, named `<config group>.<choice>`, each of
which points at a dataclass whose fields are the options (`option`). What the dataclass must offer besides, depends on
the group:

    compression  the methods of `Compression`
    transport    the methods of `Transport`; `lossy`: True if it may drop parts, `datagrams`: if their channels are
                 datagrams; `block_bytes`: wanted size of parts
    scheduler    `fills`: which places it takes, "scheduler" or "overlay" or both; a "scheduler" has `part_elements`,
                 and the methods of `Scheduler` where it ranks, an "overlay" the methods of `Overlay`
    topology     the fields of `geomx.config.topology.Topology`; `placement`: "module:function" like `Placement`
    launcher     the fields of `geomx.config.surroundings.Local`; `target`: "module:class", a `Launcher` that takes the
                 dataclass (`geomx.launchers.local.LocalLauncher` may be its base)
    tracking     `target`: "module:class", a `Tracker` that takes the dataclass; empty: nothing is tracked
    framework    `target`: "module:function" that takes the dataclass
    task         `target`: the same

A dataclass may say what its choice can't be combined with and what it can't do without, as class variables:

    forbids: ClassVar[dict[str, str]] = {"topology=flat": "there are no parties to relay between"}
    needs: ClassVar[dict[str, str]] = {"sync=fsa": "residuals are kept for rounds that all parties share"}

`python -m geomx.plugin new KIND NAME` begins a distribution, `python -m geomx.plugin check DIST` says what is wrong
with one that is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from geomx.errors import ConfigError, Forbidden, RunFailed
from geomx.options import option

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from geomx.spec import NodeSpec

__all__ = [
    "Codec",
    "CodecChoice",
    "Compression",
    "ConfigError",
    "Forbidden",
    "Launcher",
    "Line",
    "NativeCodec",
    "NativePlugin",
    "Overlay",
    "OverlayChoice",
    "PartInfo",
    "Placement",
    "Policy",
    "Promise",
    "PythonCodec",
    "RunFailed",
    "RunInfo",
    "Scheduler",
    "Shard",
    "Tensor",
    "Tracker",
    "Transport",
    "TransportChoice",
    "option",
]


# --- compression ------------------------------------------------------------------------------------------------------


WIDTHS = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "uint8": 1}


@dataclass(frozen=True)
class CodecChoice:
    """A codec by name and its parameters, numbers and words. "identity" sends values as they are."""

    name: str = "identity"
    params: Mapping[str, int | float | str] = field(default_factory=dict)


class Policy:
    """Which codec for which tensor, tier and direction. Asked once a key, on every node: the answer must depend on
    nothing but the arguments and the plugin's options."""

    def choose(self, name: str, length: int, dtype: str, tier: str, direction: str) -> CodecChoice:
        """length: elements of the whole tensor; dtype: "float32", ...; tier: "lan" or "wan"; direction: "up" or
        "down". Raises ConfigError for a tensor that can't be compressed as the options ask."""
        raise NotImplementedError


@dataclass(frozen=True)
class NativeCodec:
    """A shared library that exports `geomx_plugin_v1` (geomx/plugin.h) and adds codecs by name."""

    path: Path


@dataclass(frozen=True)
class PythonCodec:
    """A codec written in Python: `make(params)` returns a `Codec`. It is called once a key, tier and direction."""

    name: str
    make: Callable[[dict[str, Any]], Codec]


NOT_FINITE = ("kept", "zero", "finite")


@dataclass(frozen=True)
class Promise:
    """What a codec keeps, for `geomx.testing.codec_suite` and `python -m geomx.plugin check`.

    error: of a value that arrives, relative to the largest of its part: 1/254 for rounding to 8 bits, 1 for a sign
    merge_error: of merged parts, relative to the largest of their sum
    sparse: not every value arrives in the round in which it was given
    dtypes: what it must take; halves may be taken besides, all others must be refused
    not_finite: what NaN becomes: "kept" (NaN), "zero", or "finite" (some number, for formats that have no 0); an
        infinity never comes back as NaN, and neither spreads to other values or rounds
    rounds_to_drain: after which a residual has left, if nothing new is given

    Raises ConfigError for another word in not_finite.
    """

    error: float = 0.0
    merge_error: float = 0.0
    sparse: bool = False
    dtypes: tuple[str, ...] = ("float32", "float64")
    not_finite: str = "kept"
    rounds_to_drain: int = 0

    def __post_init__(self) -> None:
        if self.not_finite not in NOT_FINITE:
            raise ConfigError(
                f"Promise.not_finite: {self.not_finite!r} given, allowed is one of {', '.join(NOT_FINITE)}"
            )


class Compression:
    """Base of the options of a compression plugin."""

    promises: ClassVar[Mapping[str, Promise]] = {}  # of its codecs, by name

    def policy(self) -> Policy:
        raise NotImplementedError

    def bytes_per_element(self, name: str, length: int, dtype: str) -> float:
        """What an element of this tensor takes on its way up between parties, about. Parts are cut by it where a
        transport wants small ones."""
        return WIDTHS.get(dtype, 4)

    def codecs(self) -> Sequence[NativeCodec | PythonCodec]:
        """The codecs that `policy` may name, besides "identity". Called on every node; may import what is heavy."""
        return ()


@dataclass(frozen=True)
class PartInfo:
    """Where one part of one tensor belongs."""

    key: str  # the tensor's name
    part: int
    num_parts: int
    round: int
    offset: int  # elements, within the flattened tensor
    length: int
    tensor_length: int
    dtype: str  # of the tensor; halves are given and taken as float32
    tier: str  # lan, wan
    direction: str  # up, down
    content: str = "gradient"  # of the values: gradient, parameter, delta


class Codec:
    """Part <-> bytes, in Python. Subclass it, set the class variables, write encode and decode.

    All calls for one key come from one thread and hold the GIL. A *slot* is what a codec remembers between rounds for
    one (peer, key, direction): `open_slot` makes it, the core keeps it and hands it in. Arrays are one-dimensional and
    C-contiguous; `values` may be read during the call only. What decode and accumulate are given comes from the
    network: they must raise ValueError, with a sentence, for bytes that encode can't have made.
    """

    wire_id: ClassVar[str]  # four ASCII letters, travel in each frame: other bytes need another id
    scope: ClassVar[str] = "part"  # "part", or "tensor": prepare() sees all values before the parts are encoded
    lossy: ClassVar[bool] = False  # decode gives other values than encode got
    # What it may be chosen for. A delta is what parameters are less what their receivers have of them: what encode
    # leaves out of it must not be kept, it is in the next round's delta. What carries parameters never gets deltas.
    carries: ClassVar[tuple[str, ...]] = ("gradient", "parameter", "delta")
    mergeable: ClassVar[bool] = False  # merge() adds encoded parts exactly
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float16", "bfloat16", "float64")

    def open_slot(self, tensor: PartInfo) -> Any:
        """What is remembered for this tensor; None if nothing. `tensor` covers all of it."""
        return None

    def prepare(self, slot: Any, tensor: PartInfo, values: NDArray[Any]) -> None:
        """Once a round, before its parts are encoded, where scope is "tensor"."""

    def encode(self, slot: Any, part: PartInfo, values: NDArray[Any]) -> bytes:
        raise NotImplementedError

    def decode(self, part: PartInfo, data: memoryview, out: NDArray[Any]) -> None:
        """Fills `out`, part.length values."""
        raise NotImplementedError

    def accumulate(self, part: PartInfo, data: memoryview, into: NDArray[Any]) -> None:
        """into += decoded. Worth writing where it costs less than decoding all values."""
        import numpy as np

        out: NDArray[Any] = np.empty_like(into)
        self.decode(part, data, out)
        into += out

    def give_back(self, slot: Any, part: PartInfo, data: memoryview) -> None:
        """What was encoded here didn't arrive: it goes back into the residual."""
        raise NotImplementedError

    def score(self, part: PartInfo, data: memoryview) -> float:
        """How much an encoded part weighs: the sum of its absolute values."""
        import numpy as np

        out: NDArray[Any] = np.empty(part.length, dtype=np.float64 if part.dtype == "float64" else np.float32)
        self.decode(part, data, out)
        return float(np.abs(out).sum())

    def merge(self, part: PartInfo, pieces: Sequence[memoryview]) -> bytes:
        """The sum of encoded parts, encoded, exactly; for relays."""
        raise NotImplementedError

    def save_slot(self, slot: Any) -> bytes:
        return b""

    def load_slot(self, slot: Any, data: bytes) -> None:
        """Takes what save_slot gave."""


# --- transport --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NativePlugin:
    """A shared library that exports `geomx_plugin_v1` (geomx/plugin.h) and adds a transport by name."""

    path: Path


@dataclass(frozen=True)
class TransportChoice:
    """A native transport by name and its parameters, numbers and words."""

    name: str
    params: Mapping[str, int | float | str] = field(default_factory=dict)


class Transport:
    """Base of the options of a transport plugin. It serves between parties; inside one everything is reliable."""

    @property
    def lossy(self) -> bool:
        """May a round close without some of the parts that were sent for it?"""
        return False

    @property
    def datagrams(self) -> bool:
        """Are its lossy channels datagrams, which a shaped link can lose?"""
        return self.lossy

    @property
    def unmergeable(self) -> str:
        """Why an overlay can't merge what it sends (some parts travel in another format than their codec's, say), and
        what goes instead; empty: it can."""
        return ""

    def choice(self) -> TransportChoice | None:
        """None: the core's plain one."""
        return None

    def libraries(self) -> Sequence[NativePlugin]:
        """What adds the transport that `choice` names. Called on every node."""
        return ()


# --- scheduler --------------------------------------------------------------------------------------------------------


PARTS_ON_THE_LINE = 16  # so many fit into the bandwidth-delay product
SPARE_PARTS = 8  # in credit, however many share a link: it comes back by whole parts, behind the other direction's
HOST_S = 0.001  # that a host takes to acknowledge, which on a short line is most of the round trip
LEAST_PART_ELEMENTS = 2_000
BYTES_PER_ELEMENT = 4  # of a part that is not compressed


@dataclass(frozen=True)
class Line:
    """What is known of the way to a peer; 0: nothing."""

    bytes_per_s: float = 0.0
    round_trip_s: float = 0.0
    share_bytes: float = 0.0  # that may be on their way to each peer until some link's queue overflows, all sending

    def part_elements(self, most: int, bytes_per_element: float) -> int:
        """Of a part that credit can come back by: at most `most` (0: no bound), fewer where 16 such parts don't fit
        into rate times round trip, or 8 into the share."""
        part_bytes = self.bytes_per_s * self.round_trip_s / PARTS_ON_THE_LINE
        if not part_bytes:
            return most
        if self.share_bytes:
            part_bytes = min(part_bytes, self.share_bytes / SPARE_PARTS)
        fitting = max(LEAST_PART_ELEMENTS, int(part_bytes / max(bytes_per_element, 1e-6)))
        return min(most, fitting)

    def credit_bytes(self, part_elements: int) -> int:
        """That keep the line busy with parts of so many elements and overflow no queue; 0: nothing is known."""
        if not self.bytes_per_s:
            return 0
        spare = SPARE_PARTS * part_elements * BYTES_PER_ELEMENT
        wanted = int(self.bytes_per_s * self.round_trip_s) + spare
        least = max(spare, int(self.bytes_per_s * HOST_S))
        return min(wanted, max(int(self.share_bytes), least)) if self.share_bytes else wanted


class Scheduler:
    """Base of the options of a scheduler plugin that ranks parts. Parts leave by the priority that their push asked
    for, then by `rank`, the larger first; equal ones in order. That holds on every way that they go: in both tiers,
    upwards and downwards. What has left is never called back: `credit_bytes` says how much that may be."""

    fills: ClassVar[tuple[str, ...]] = ("scheduler",)
    ranks: ClassVar[bool] = True  # False: `rank` isn't asked, parts leave in the order in which they came
    part_elements: int

    def rank(self, name: str, order: int, length: int, tier: str) -> int:
        """Asked once a key and tier, on every node. order: of declaration, from 0; length: elements of the tensor;
        tier: "lan" or "wan". Between -2**30 and 2**30."""
        return -order

    def part_length(self, line: Line, bytes_per_element: float) -> int:
        """Elements of a tensor's part at most, 0: not cut. Asked once a key, by the authority. line: of the central
        party's servers to the others; bytes_per_element: what one takes between parties, about."""
        return self.part_elements

    def credit_bytes(self, tier: str, line: Line) -> int:
        """Bytes that may be on their way to a peer and not acknowledged; one message always may. line: the fastest
        and the longest of this node's ways in the tier."""
        raise NotImplementedError

    def credit_grows(self, tier: str, line: Line) -> bool:
        """True: `credit_bytes` is the least, and what is measured of a peer comes on top: 1.25 times the rate that its
        acknowledgements show, times the shortest round trip."""
        return False


# --- overlay ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OverlayChoice:
    """A native overlay by name and its parameters, numbers and words."""

    name: str
    params: Mapping[str, int | float | str] = field(default_factory=dict)


class Overlay:
    """Base of the options of a scheduler plugin that fills the place "overlay": where contributions merge on their way
    up, and by whom values are passed on."""

    fills: ClassVar[tuple[str, ...]] = ("overlay",)

    def choice(self, tier: str) -> OverlayChoice | None:
        """tier: "lan" or "wan". None: the star."""
        return None

    def part_length(self, length: int, bytes_per_element: float) -> int:
        """Elements at most of a part of a tensor of `length`, 0: whatever the scheduler says. Relays that should work
        at the same time need short ones. bytes_per_element: what one takes between parties, about."""
        return 0

    def libraries(self) -> Sequence[NativePlugin]:
        """What adds the overlays that `choice` names. Called on every node."""
        return ()


# --- placement --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shard:
    """`length` elements from `offset` of a flattened tensor, held by global server `server`."""

    server: int
    offset: int
    length: int


@dataclass(frozen=True)
class Tensor:
    """What is to be placed; bytes: what it takes on its way up between parties, about."""

    name: str
    length: int
    bytes: float


class Placement(Protocol):
    """Which global server holds what; asked on one node only: for tensors that are declared together once for all of
    them, in the order of declaration, for others one by one."""

    def __call__(self, options: Any, tensors: Sequence[Tensor], held: Sequence[float]) -> Sequence[Sequence[Shard]]:
        """options: of the chosen topology; held: bytes of what each global server holds so far, as `Tensor.bytes`. The
        shards of each tensor must cover it once; a tensor of 0 elements has one shard of length 0."""


# --- observers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What a tracker is told about a run before it starts."""

    directory: Path
    config: Mapping[str, Any]  # resolved and plain
    in_sweep: bool = False  # then directory.parent is the sweep's


class Tracker:
    """Sees a run. Called from the launcher's process only, on one thread. An exception in start() fails the run; one
    in round() or end() is a warning, and the tracker is not asked again."""

    def start(self, run: RunInfo) -> None:
        """Before any node starts."""

    def round(self, row: Mapping[str, float]) -> None:
        """A line of metrics.jsonl; must return quickly."""

    def end(self, summary: Mapping[str, Any]) -> None:
        """All files of the run but summary.json's last version are there; the status is in summary["status"]."""

    @property
    def run_id(self) -> str | None:
        """Where the run can be found again; into summary.json as mlflow_run_id."""
        return None


# --- launchers --------------------------------------------------------------------------------------------------------


class Launcher:
    """Where nodes run. The base starts each node as a process of this machine; another launcher overrides what
    differs. Progress, logs, failures and the end of a run are not its business."""

    def __init__(self, options: Any) -> None:
        self.options = options

    def configure(self, config: Any) -> None:
        """The whole configuration, before anything else is asked."""

    def prepare(self, nodes: Sequence[NodeSpec]) -> None:
        """Before the first node starts; what it sets up, `cleanup` takes away."""

    def command(self, node: NodeSpec) -> list[str]:
        """The command that runs this node. It must hand its standard input on to it."""
        raise NotImplementedError

    def host(self, party: str) -> str:
        """The address that others reach this party's nodes by, where the config says nothing."""
        return "127.0.0.1"

    def links(self) -> str:
        """File that nodes shape the WAN through, once prepared; empty: nodes leave the network as it is."""
        return ""

    def told(self) -> dict[str, Any]:
        """What summary.json says in "network", once prepared; `self_test` holds rows as geomx.wan.selftest makes
        them."""
        return {}

    def environment(self, node: NodeSpec, num_workers: int) -> dict[str, str]:
        """Variables that are set for this node besides those of the launcher; num_workers share this machine."""
        return {}

    def cleanup(self) -> None:
        """After the last node has ended, however the run went."""
