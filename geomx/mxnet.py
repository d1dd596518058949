"""MXNet's front door. After `import geomx.mxnet`, `mx.kv.create("dist_sync")` gives a store of this project.

push and pull are operations of MXNet's engine: they return at once, start when their arrays are ready, and whoever
reads an array waits for just that array. Calls on one key keep their order by a fence, one small array a key, beside
the arrays' own dependencies. A failure is raised as `geomx.Error` where an array of the operation is waited for and
by every later call of the store; waits end by the node's own deadline (`wait_s`), with the sentence that says who
waited for what.

Halves are summed over devices in float32. Arrays on a GPU, and arrays of three or more dimensions that are pushed, go
through a copy in main memory: oneDNN may hold the latter in layouts that only MXNet can read.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from geomx import connect, mxshim, optimizers, updaters
from geomx._core import Error, Node
from geomx.engine import Engine, Operation
from geomx.kv import Store, pairs_of, priorities_of, seconds_of
from geomx.spec import NodeSpec

mx = mxshim.mxnet()
_Base: Any = mx.kvstore.KVStoreBase

KINDS = ("dist_sync", "dist_async", "dist_device_sync", "dist_sync_device", "dist")


class MxStore(Store, _Base):  # type: ignore[misc]  # MXNet has no types
    """`geomx.kv.Store` for MXNet's arrays; a key may be given a list of arrays, one a device."""

    def __init__(
        self, node: Node, spec: NodeSpec, kind: str = "dist_sync", closer: Callable[[], None] | None = None
    ) -> None:
        super().__init__(node, spec, kind, closer)
        self.waits_by_itself = True
        self._engine = _engine()
        self._fences: dict[str, Any] = {}
        self._failure = ""  # the first sentence that an operation ended with

    # --- tensors ------------------------------------------------------------------------------------------------
    def init(self, key: Any, value: Any, timeout: float | None = None) -> None:
        """As `Store.init`; waits for the arrays."""
        self._check()
        names, groups = pairs_of(key, value)
        self.node.init(
            names,
            [_dense(n, arrays)[0].asnumpy() for n, arrays in zip(names, groups, strict=True)],
            seconds_of(timeout),
        )

    def push(self, key: Any, value: Any, priority: int | Sequence[int] = 0, timeout: float | None = None) -> None:
        """As `Store.push`, but returns at once; the arrays may be written again, MXNet sees to the order."""
        self._check()
        names, groups = pairs_of(key, value)
        for name, arrays, rank in zip(names, groups, priorities_of(priority, names), strict=True):
            self._push(name, _source(_dense(name, arrays)), rank)

    def pull(
        self,
        key: Any,
        out: Any = None,
        priority: int | Sequence[int] = 0,
        timeout: float | None = None,
        ignore_sparse: bool = True,
    ) -> None:
        """As `Store.pull`, but returns at once; whoever reads `out` waits."""
        self._check()
        names, groups = pairs_of(key, out)
        for name, arrays, rank in zip(names, groups, priorities_of(priority, names), strict=True):
            self._pull(name, _dense(name, arrays), rank)

    def push_pull(
        self, key: Any, value: Any, out: Any = None, priority: int | Sequence[int] = 0, timeout: float | None = None
    ) -> None:
        """As `Store.push_pull`, but returns at once."""
        self.push(key, value, priority, timeout)
        self.pull(key, value if out is None else out, priority, timeout=timeout)

    pushpull = push_pull

    def start_round(self, key: Any, value: Any, out: Any, priority: int = 0) -> Callable[[], None]:
        """As `Store.start_round`. Nobody needs to call what is returned: the engine knows who reads `out`."""
        self.push_pull(key, value, out, priority)
        wait: Callable[[], None] = out.wait_to_read
        return wait

    def broadcast(
        self, key: Any, value: Any, out: Any, priority: int | Sequence[int] = 0, timeout: float | None = None
    ) -> None:
        """`init` followed by `pull`."""
        self.init(key, value, timeout)
        self.pull(key, out, priority, timeout=timeout)

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        """Raises Error: only dense arrays are served."""
        raise Error(f"key {key!r}: row_sparse_pull isn't offered; use dense parameters (stype, grad_stype 'default')")

    # --- configuration ------------------------------------------------------------------------------------------
    def set_optimizer(self, optimizer: Any, timeout: float | None = None, **params: optimizers.Scalar) -> None:
        """As `Store.set_optimizer`; takes a mx.optimizer.Optimizer too, of which name and parameters travel."""
        self._check()
        given = optimizer if isinstance(optimizer, (str, Mapping)) else updaters.params_of(optimizer)
        super().set_optimizer(given, timeout, **params)

    # --- together -----------------------------------------------------------------------------------------------
    def barrier(self, world: bool = False, timeout: float | None = None) -> None:
        """As `Store.barrier`; doesn't wait for arrays."""
        self._check()
        super().barrier(world, timeout)

    def _barrier(self) -> None:
        self.barrier()

    def leave(self, timeout: float | None = None) -> None:
        """As `Store.leave`, after all that is under way."""
        if not self._ended:
            mx.nd.waitall()
            self._check()
            super().leave(timeout)

    def close(self) -> None:
        """As `Store.close`."""
        try:
            super().close()
        finally:
            with contextlib.suppress(Exception):
                mx.nd.waitall()  # callbacks must not come after the interpreter's end
            _forget(self)

    # --- operations ---------------------------------------------------------------------------------------------
    def _push(self, name: str, source: Any, priority: int) -> None:
        """Two operations: one issues the push in the key's order, the other holds the array until it was read. So a
        pull into another array is issued right after the push, and its value can come straight into place."""
        held = _Held()
        self._engine.push(held.start, [source], [], priority, b"geomx.push")
        self._engine.push(functools.partial(self._issue_push, name, source, priority, held), [source],
                          [self._fence(name)], priority, b"geomx.issue")  # fmt: skip

    def _issue_push(self, name: str, source: Any, priority: int, held: "_Held", operation: Operation) -> None:
        self.gradients_ready_at = time.perf_counter()

        def done(error: str) -> None:
            self._note(error)
            held.end(error)

        try:
            self._check()
            address = self._engine.plain_address(source)
            self.node.push_address(name, address, tuple(source.shape), _dtype(source), priority, done)
        except Exception as e:
            done(str(e))
            raise
        operation.end()

    def _pull(self, name: str, outs: list[Any], priority: int) -> None:
        first = outs[0]
        asked_at = time.perf_counter()
        target = first if _in_memory(first) else mx.nd.empty(first.shape, ctx=mx.cpu(), dtype=first.dtype)
        self._engine.unblock(target)
        self._engine.push(functools.partial(self._issue_pull, name, target, priority, asked_at), [],
                          [target, self._fence(name)], priority, b"geomx.pull")  # fmt: skip
        with mx.autograd.pause():
            for out in outs:
                if out is not target:
                    target.copyto(out)

    def _issue_pull(self, name: str, target: Any, priority: int, asked_at: float, operation: Operation) -> None:
        def done(error: str) -> None:
            if asked_at < self.step_began_at:
                self.values_ready_at = time.perf_counter()
            self._note(error)
            operation.end(error)

        try:
            self._check()
            address = self._engine.plain_address(target)
            self.node.pull_address(name, address, tuple(target.shape), _dtype(target), priority, done)
        except Exception as e:
            self._note(str(e))
            raise

    def _fence(self, name: str) -> Any:
        if name not in self._fences:
            self._fences[name] = mx.nd.zeros((1,), ctx=mx.cpu())
        return self._fences[name]

    def _note(self, error: str) -> None:
        self._failure = self._failure or error

    def _check(self) -> None:
        if self._failure:
            raise Error(self._failure)


class _Held:
    """An operation that ends when both it has started and `end` was called, in either order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operation: Operation | None = None
        self._error: str | None = None

    def start(self, operation: Operation) -> None:
        with self._lock:
            self._operation = operation
            ready = self._error is not None
        if ready:
            operation.end(self._error or "")

    def end(self, error: str) -> None:
        with self._lock:
            self._error = error
            operation = self._operation
        if operation is not None:
            operation.end(error)


# --- creating ---------------------------------------------------------------------------------------------------
_store: MxStore | None = None


def create(kind: str = "dist_sync") -> MxStore:
    """Joins the cluster as the environment says. A process is one worker: another call gives the same store; one that
    asks for another kind raises Error."""
    global _store
    if _store is None:
        _store = connect.joined(MxStore, kind)
    elif ("async" in kind) != ("async" in _store.type):
        raise Error(f"this process already has a store of type {_store.type}, it can't have one of type {kind} too")
    return _store


def _forget(store: MxStore) -> None:
    global _store
    if _store is store:
        _store = None


def register() -> None:
    """Makes `mx.kv.create` give stores of this project for the distributed types."""
    for kind in KINDS:
        mx.kvstore.KVStoreBase.kv_registry[kind] = functools.partial(create, kind)


@functools.cache
def _engine() -> Engine:
    return Engine()


# --- arrays -----------------------------------------------------------------------------------------------------
def _dense(name: str, arrays: list[Any]) -> list[Any]:
    for array in arrays:
        if not isinstance(array, mx.nd.NDArray):
            raise TypeError(f"key {name!r}: an array of MXNet is needed, {type(array).__name__} given")
        if array.stype != "default":
            raise Error(
                f"key {name!r}: a {array.stype} array given, only dense ones are served (stype and grad_stype "
                "'default')"
            )
    return arrays


def _in_memory(array: Any) -> bool:
    return str(array.context.device_type).startswith("cpu")


def _source(arrays: list[Any]) -> Any:
    """One dense array in main memory, in the plain layout, with the sum over the devices."""
    first = arrays[0]
    with mx.autograd.pause():
        if len(arrays) > 1:
            wide = "float32" if np.dtype(first.dtype).itemsize < 4 else first.dtype
            return mx.nd.add_n(*(a.as_in_context(mx.cpu()).astype(wide) for a in arrays)).astype(first.dtype)
        if not _in_memory(first):
            return first.as_in_context(mx.cpu())
        return first.copy() if len(first.shape) > 2 else first


def _dtype(array: Any) -> str:
    dtype = np.dtype(array.dtype)
    return "bfloat16" if dtype.names == ("bfloat16",) else dtype.name


register()
