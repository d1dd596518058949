"""The store: how a worker's program pushes and pulls arrays. Framework-free; arrays are numpy's.

Keys are whole numbers or strings, the same on every node whatever the order of declaration. 3 and "3" are different
keys: a number k travels as the name "#k", and a string that begins with "#" gets a second one.

Arrays are float32, float16, float64 or bfloat16 and keep the shape and dtype that their key was declared with. Every
call that waits takes `timeout` in seconds (None: the node's own deadline), releases the GIL while it waits, and raises
`Timeout` with a sentence that says who waited for what; when the run has failed it raises `Error` with the reason.

A store is used by one thread at a time.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx import exits, optimizers, plugins
from geomx._core import Error, Node, Refused, Ticket, Timeout
from geomx.agreed import options_of
from geomx.errors import ConfigError
from geomx.options import fields_of, shared
from geomx.spec import NodeSpec, setting

__all__ = ["Error", "Key", "Refused", "Store", "Timeout", "key_name"]

Key = int | str
Array = NDArray[Any]
Arrays = Array | Sequence[Array]


class Store:
    """One worker's view of the cluster. `node` is started already; `geomx.connect.store()` joins and makes one.

    With several devices a key may be given a list of arrays: they are summed before they are pushed, and a pull fills
    all of them. `close` leaves, and then calls `closer`, by default the node's own close.
    """

    def __init__(
        self, node: Node, spec: NodeSpec, kind: str = "dist_sync", closer: Callable[[], None] | None = None
    ) -> None:
        self.node = node
        self.spec = spec
        self._kind = kind
        self.waits_by_itself = False  # whoever reads an array that is pulled waits for it, whatever he reads it for
        # Of time.perf_counter(): when the last push began, so all gradients were there; when a training loop began its
        # step, and when the last came of the values that were pulled before, for which its forward pass had to wait.
        self.gradients_ready_at = self.step_began_at = self.values_ready_at = 0.0
        self._ended = False
        self._closer = closer or node.close

    # --- who is who ---------------------------------------------------------------------------------------------
    @property
    def type(self) -> str:
        """What the store was created as: dist_sync, dist_async, ..."""
        return self._kind

    @property
    def rank(self) -> int:
        """This worker's place in its party, from 0."""
        return self.node.rank

    @property
    def num_workers(self) -> int:
        """Workers of this party."""
        return self.node.num_workers

    @property
    def num_all_workers(self) -> int:
        """Workers of all parties that train."""
        return self.node.num_all_workers

    @property
    def global_rank(self) -> int:
        """This worker's place among all that train."""
        return self.node.global_rank

    @property
    def party(self) -> str:
        """The party's name."""
        return self.node.party

    @property
    def is_master_worker(self) -> bool:
        """This worker configures the cluster; without central workers it only observes."""
        return self.spec.is_master

    @property
    def trains(self) -> bool:
        """Pushes of this worker contribute."""
        return self.spec.central_trains or not (self.spec.is_master or self.spec.is_central)

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether the store offers this; MXNet's trainer asks for "optimizer". Others raise ValueError."""
        if capability.lower() == "optimizer":
            return True
        raise ValueError(f"capability {capability!r}: known is optimizer")

    # --- tensors ------------------------------------------------------------------------------------------------
    def init(self, key: Key | Sequence[Key], value: Arrays, timeout: float | None = None) -> None:
        """Declares keys and returns when they are declared everywhere.

        The authority's (the master worker's, else rank 0's of the first party) values are the initial ones; values of
        others only say shape and dtype, which must be the same (else Error on both sides).
        """
        names, groups = pairs_of(key, value)
        self.node.init(
            names, [_readable(name, arrays[0]) for name, arrays in zip(names, groups, strict=True)], seconds_of(timeout)
        )

    def push(
        self, key: Key | Sequence[Key], value: Arrays, priority: int | Sequence[int] = 0, timeout: float | None = None
    ) -> None:
        """Gives a contribution to the keys' next rounds. Returns when the arrays may be changed again."""
        names, values = _sources(key, value)
        self.gradients_ready_at = time.perf_counter()
        self.node.push(names, values, priorities_of(priority, names)).wait(seconds_of(timeout))

    def pull(
        self, key: Key | Sequence[Key], out: Arrays, priority: int | Sequence[int] = 0, timeout: float | None = None
    ) -> None:
        """Fills `out` with the value after as many rounds as this worker has pushed (or a newer one).

        That is the initial value before the first push; then the weights, with a server optimizer, or the sum of that
        round's pushes.
        """
        names, targets = _targets(key, out)
        self.node.pull(names, targets.arrays, priorities_of(priority, names)).wait(seconds_of(timeout))
        targets.spread()

    def push_pull(
        self,
        key: Key | Sequence[Key],
        value: Arrays,
        out: Arrays | None = None,
        priority: int | Sequence[int] = 0,
        timeout: float | None = None,
    ) -> None:
        """A push and the pull of its round in one trip, for many keys at once. Without `out` it fills `value`."""
        names, values = _sources(key, value)
        targets = _targets(key, value if out is None else out)[1]
        self.gradients_ready_at = time.perf_counter()
        ticket: Ticket = self.node.push_pull(names, values, targets.arrays, priorities_of(priority, names))
        ticket.wait(seconds_of(timeout))
        targets.spread()

    pushpull = push_pull

    def start_round(self, key: Key, value: Any, out: Any, priority: int = 0) -> Callable[[], None]:
        """As `push_pull` of one key, but returns at once. When what is returned has been called, `out` is there and
        `value` may be written to again."""
        names, values = _sources(key, value)
        targets = _targets(key, out)[1]
        self.gradients_ready_at = time.perf_counter()
        ticket: Ticket = self.node.push_pull(names, values, targets.arrays, priorities_of(priority, names))

        def wait() -> None:
            ticket.wait(seconds_of(None))
            targets.spread()

        return wait

    def broadcast(
        self,
        key: Key | Sequence[Key],
        value: Arrays,
        out: Arrays,
        priority: int | Sequence[int] = 0,
        timeout: float | None = None,
    ) -> None:
        """`init` followed by `pull`: afterwards `out` is the authority's value on every worker."""
        self.init(key, value, timeout)
        self.pull(key, out, priority, timeout)

    # --- configuration ------------------------------------------------------------------------------------------
    def set_optimizer(
        self, optimizer: str | Mapping[str, Any], timeout: float | None = None, **params: optimizers.Scalar
    ) -> None:
        """The global servers update weights with this from the first push on. Returns when all of them have it.

        `set_optimizer("adam", learning_rate=0.01)` or one mapping with "name". The same call by others is accepted,
        a different one is Refused, and so is one after the authority's first push.
        """
        self.node.configure("optimizer", optimizers.text(optimizers.checked(optimizer, **params)), seconds_of(timeout))

    def set_gradient_compression(self, compression_params: Mapping[str, Any], timeout: float | None = None) -> None:
        """{"type": the plugin's name, its options}: {"type": "bsc", "threshold": 0.01}. As for `set_optimizer`."""
        self.node.configure(
            "compression", compression_text(compression_params, self.spec.settings), seconds_of(timeout)
        )

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Raises Error: the optimizers' states stay on the global servers for now."""
        raise Error(
            f"{fname} was not written: the optimizers' states are on the global servers, and this version "
            "can't fetch them; save the weights"
        )

    def load_optimizer_states(self, fname: str) -> None:
        """Raises Error: the optimizers' states stay on the global servers for now."""
        raise Error(
            f"{fname} was not read: the optimizers' states are on the global servers, and this version "
            "can't set them; begin from saved weights"
        )

    def report(self, name: str, value: float) -> None:
        """A figure that techniques use: the loss of the last step as "loss"."""
        if not math.isfinite(value):
            raise ValueError(f"report: {name} is {value}, a finite number is needed")
        self.node.report(name, float(value))

    # --- together -----------------------------------------------------------------------------------------------
    def barrier(self, world: bool = False, timeout: float | None = None) -> None:
        """Returns when all workers of the party (`world`: of all parties) are here."""
        self.node.barrier(world, seconds_of(timeout))

    def leave(self, timeout: float | None = None) -> None:
        """No more batches from here: rounds no longer wait for this worker. Returns when its pushes were answered."""
        if not self._ended:
            self.node.leave(seconds_of(timeout))
            self._ended = True

    def fail(self, reason: str) -> None:
        """Ends the run everywhere; `reason` is part of the sentence that everybody shows."""
        if not self._ended:
            self._ended = True
            exits.failing(self.node.failure)
            self.node.fail(f"{self.spec.title}: {reason}")

    def close(self) -> None:
        """Leaves, if it hasn't left or failed, and frees the node. A leave that can't be done fails the run and is
        raised. Further calls do nothing."""
        exits.forget(self)
        try:
            self.leave()
        except Exception as e:
            self.fail(str(e))
            raise
        finally:
            self._closer()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.fail(f"{error.__class__.__name__}: {error}")
        self.close()


def key_name(key: Key) -> str:
    """The name that a key travels by; different keys have different names."""
    if isinstance(key, int) and not isinstance(key, bool):
        return f"#{key}"
    if isinstance(key, str) and key:
        return f"#{key}" if key.startswith("#") else key
    raise TypeError(f"key {key!r}: a whole number or a string that isn't empty is needed")


def compression_text(params: Mapping[str, Any], settings: Mapping[str, str]) -> str:
    """MXNet's {"type": ...} as the setting "compression", with all options of the plugin; those that are settings of
    their own ("compression.size_lower_bound") count where the script says nothing. Raises ConfigError."""
    given = dict(params)
    name = given.pop("type", given.pop("name", None))
    if not isinstance(name, str) or not name:
        raise ConfigError(f"set_gradient_compression: 'type' is {name!r}, needed is a compression plugin's name")
    known = fields_of(plugins.load("compression", name))
    apart = {option: value for option, value in options_of("compression", settings).items() if option in known}
    if contrary := [option for option, value in apart.items() if given.get(option, value) != value]:
        option = contrary[0]
        raise ConfigError(
            f"set_gradient_compression: {option} is {given[option]!r}, but {apart[option]!r} was set when "
            "the run began; set it once, or the same"
        )
    return setting(shared(plugins.options("compression", {"name": name, **apart, **given})))


def pairs_of(key: Key | Sequence[Key], value: Any) -> tuple[list[str], list[list[Any]]]:
    """Names, and for each the arrays of its devices."""
    if isinstance(key, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(key) != len(value):
            count = len(value) if isinstance(value, (list, tuple)) else 1
            raise ValueError(f"{len(key)} keys but {count} arrays: a list of keys goes with a list as long")
        return [key_name(k) for k in key], [devices_of(v) for v in value]
    return [key_name(key)], [devices_of(value)]  # type: ignore[arg-type]


def devices_of(value: Any) -> list[Any]:
    arrays = list(value) if isinstance(value, (list, tuple)) else [value]
    if not arrays:
        raise ValueError("an empty list of arrays given for a key")
    return arrays


def _readable(name: str, array: Array) -> Array:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"key {name!r}: a numpy array is needed, {type(array).__name__} given")
    return np.ascontiguousarray(array).reshape(array.shape)


def _summed(name: str, arrays: list[Array]) -> Array:
    if len(arrays) == 1:
        return _readable(name, arrays[0])
    wide = np.float32 if arrays[0].dtype.itemsize < 4 else arrays[0].dtype
    total: Array = np.sum([_readable(name, a) for a in arrays], axis=0, dtype=wide).astype(arrays[0].dtype)
    return total


class _Targets:
    """Where a pull writes: buffers that can be written directly, and whatever must be copied out of them afterwards."""

    def __init__(self, arrays: Sequence[Array], copies: Sequence[tuple[Array, list[Array]]] = ()) -> None:
        self.arrays = arrays
        self._copies = copies

    def spread(self) -> None:
        for array, outs in self._copies:
            for out in outs:
                if out is not array:
                    np.copyto(out, array)


def _is_plain(value: Any) -> bool:
    """A list of arrays that the core can take as they are; thousands of them are told in one pass."""
    return isinstance(value, list) and all(type(a) is np.ndarray and a.flags.carray for a in value)


def _sources(key: Key | Sequence[Key], value: Any) -> tuple[list[str], Sequence[Array]]:
    if isinstance(key, list) and _is_plain(value) and len(key) == len(value):
        return [key_name(k) for k in key], value
    names, groups = pairs_of(key, value)
    return names, [_summed(name, arrays) for name, arrays in zip(names, groups, strict=True)]


def _targets(key: Key | Sequence[Key], out: Any) -> tuple[list[str], _Targets]:
    if isinstance(key, list) and _is_plain(out) and len(key) == len(out):
        return [key_name(k) for k in key], _Targets(out)
    names, groups = pairs_of(key, out)
    arrays = [_writable(name, outs) for name, outs in zip(names, groups, strict=True)]
    return names, _Targets(arrays, list(zip(arrays, groups, strict=True)))


def _writable(name: str, outs: list[Any]) -> Array:
    """The first device's own buffer where it can be written directly."""
    for out in outs:
        if not isinstance(out, np.ndarray) or not out.flags.writeable:
            raise TypeError(f"key {name!r}: a numpy array that can be written is needed to pull into")
    first: Array = outs[0]
    return first if first.flags.c_contiguous else np.empty_like(first, order="C")


def priorities_of(priority: int | Sequence[int], names: list[str]) -> list[int]:
    priorities = [priority] * len(names) if isinstance(priority, int) else list(priority)
    if len(priorities) != len(names):
        raise ValueError(f"{len(names)} keys but {len(priorities)} priorities")
    return priorities


def seconds_of(timeout: float | None) -> float:
    if timeout is None:
        return -1.0
    if not timeout >= 0:
        raise ValueError(f"timeout: {timeout!r} given, seconds of at least 0 or None are needed")
    return float(timeout)
