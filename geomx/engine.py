"""Operations of our own in MXNet's engine: they start when their arrays are ready and end when we say so.

An operation gets raw addresses, never arrays: these are taken in the callback, because MXNet allocates lazily. The
callback runs on an engine thread and only hands over; `Operation.end` may be called on any thread, once. An error
goes to whoever waits for one of the operation's arrays, as a `geomx.Error` with its sentence, and MXNet skips what
depends on them.

oneDNN keeps some arrays in blocked layouts that nobody else understands, and changes them behind the arrays' backs
(weights of convolutions after a forward pass without autograd). `unblock` puts an array that will be overwritten back
into the plain layout first; `plain_address` refuses one that is blocked.
"""

import ctypes
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from geomx import mxshim
from geomx._core import Error
from geomx.errors import ConfigError

_PREFIX = "geomx.Error"  # how MXNet's error texts name a Python class
_CPU_PRIORITIZED = 3  # FnProperty::kCPUPrioritized: a pool of its own, so that long operations don't hold ours up

_Start = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_End = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class _Completion(ctypes.Structure):
    """mxnet::engine::CallbackOnComplete (include/mxnet/engine.h)."""

    _fields_ = [("callback", ctypes.c_void_p), ("engine", ctypes.c_void_p), ("parameter", ctypes.c_void_p)]


class _Context(ctypes.Structure):
    """mxnet::Context: device type (1: CPU) and number."""

    _fields_ = [("device", ctypes.c_int), ("number", ctypes.c_int)]


class Operation:
    """One operation under way. It keeps its arrays alive until `end`."""

    def __init__(self, start: Callable[["Operation"], None], arrays: Sequence[Any]) -> None:
        self.start = start
        self.arrays = arrays
        self.completion: tuple[Any, int, int] | None = None  # set when it starts

    def end(self, error: str = "") -> None:
        """Hands the arrays back to the engine. error: a sentence, or "" if all is well."""
        completion, self.completion = self.completion, None
        if completion is None:
            return
        self.arrays = ()
        callback, engine, parameter = completion
        callback(engine, parameter, _exception(error) if error else None)


class Engine:
    """MXNet's engine as we use it. One for a process."""

    def __init__(self) -> None:
        if os.environ.get("MXNET_ENGINE_TYPE") == "NaiveEngine":
            raise ConfigError("MXNET_ENGINE_TYPE: NaiveEngine given, which has no asynchronous operations; unset it")
        self._mx = mxshim.mxnet()
        self._lib = self._mx.base._LIB
        self._running: dict[int, Operation] = {}
        self._numbers = itertools.count(1)
        self._start = _Start(self._on_start)  # kept: the engine calls it as long as the process lives
        self._property = ctypes.c_int(_CPU_PRIORITIZED)
        self._cpu = _Context(1, 0)
        self._mx.error.register(_PREFIX, _told)

    def push(
        self,
        start: Callable[[Operation], None],
        reads: Sequence[Any],
        writes: Sequence[Any],
        priority: int = 0,
        name: bytes = b"geomx",
    ) -> None:
        """Queues an operation. start(operation) is called when `reads` and `writes` are free, on an engine thread; an
        exception there ends the operation with that error."""
        number = next(self._numbers)
        self._running[number] = Operation(start, (*reads, *writes))
        code = self._lib.MXEnginePushAsyncND(
            self._start, ctypes.c_void_p(number), None, ctypes.byref(self._cpu), *_handles(reads), *_handles(writes),
            ctypes.byref(self._property), ctypes.c_int(priority), name, ctypes.c_bool(False)
        )  # fmt: skip
        if code != 0:
            self._running.pop(number)
            self._mx.base.check_call(code)

    def plain_address(self, array: Any) -> int:
        """Where the array's values are, row by row. Only within a started operation that has the array."""
        managed = ctypes.c_void_p()
        if self._lib.MXNDArrayToDLPack(array.handle, ctypes.byref(managed)) != 0:
            raise Error(
                f"an array of shape {array.shape} is in a blocked layout of oneDNN: give the store a copy "
                "(array.copy())"
            )
        tensor = ctypes.cast(managed, ctypes.POINTER(_DLTensor)).contents
        address = (tensor.data or 0) + tensor.byte_offset
        self._lib.MXNDArrayCallDLPackDeleter(managed)
        return int(address)

    def unblock(self, array: Any) -> None:
        """Queues what puts an array into the plain layout; its values are lost."""
        if len(array.shape) > 1 and array.size > 0:
            with self._mx.autograd.pause():
                first = array.reshape((-1,))[0:1]
                self._mx.nd._internal._zeros(shape=(1,), dtype=np.dtype(array.dtype).name, out=first)

    def _on_start(self, run_context: int, completion: int, number: int) -> None:
        operation = self._running.pop(number)
        done = ctypes.cast(completion, ctypes.POINTER(_Completion)).contents
        operation.completion = (_End(done.callback), done.engine, done.parameter)
        try:
            operation.start(operation)
        except BaseException as e:
            operation.end(str(e) or type(e).__name__)


class _DLTensor(ctypes.Structure):
    """The head of a DLManagedTensor (dlpack.h)."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int),
        ("device_id", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


def _handles(arrays: Sequence[Any]) -> tuple[Any, ctypes.c_int]:
    return (ctypes.c_void_p * len(arrays))(*(a.handle for a in arrays)), ctypes.c_int(len(arrays))


def _told(message: str) -> Error:
    return Error(message.removeprefix(f"{_PREFIX}: "))


def _exception(sentence: str) -> Any:
    """A C++ exception for the engine: a dmlc::Error is a std::runtime_error without more, which the engine copies.

    None where libstdc++ can't be had: the operation then ends without an error, and the store raises at its next call.
    """
    try:
        make = ctypes.CDLL("libstdc++.so.6")["_ZNSt13runtime_errorC1EPKc"]
    except (OSError, AttributeError):
        return None
    make.argtypes, make.restype = [ctypes.c_void_p, ctypes.c_char_p], None
    made = ctypes.create_string_buffer(64)  # not destroyed: its text leaks, once for an error that ends the run
    make(made, f"{_PREFIX}: {' '.join(sentence.split())}".encode())
    return ctypes.cast(made, ctypes.c_void_p)
