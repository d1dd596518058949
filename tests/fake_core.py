"""A cluster of one party in one process that behaves as `_core.Node` promises to workers: enough to test the store,
the engine and the training loop without sockets. Never part of the product.

One thread plays all nodes' I/O threads, so completions come from a thread that isn't the caller's, as they really do.
"""

import ctypes
import json
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from geomx._core import Error, Refused, Timeout

DEFAULT_WAIT_S = 20.0


@dataclass
class Key:
    shape: tuple[int, ...]
    dtype: str
    values: list[np.ndarray] = field(default_factory=list)  # by version; 0 is the initial value
    parts: dict[int, dict[int, np.ndarray]] = field(default_factory=dict)  # round -> worker -> contribution
    pushed: dict[int, int] = field(default_factory=dict)


class Cluster:
    """`nodes[i]` is the node of worker i; with `observer` there is one more, the master worker, at the end."""

    def __init__(self, workers: int, observer: bool = False) -> None:
        self.num_workers = workers
        self.goes_on = threading.Event()  # cleared: nothing is done
        self.goes_on.set()
        self.keys: dict[str, Key] = {}
        self.configured: dict[str, str] = {}
        self.left: dict[int, dict[str, int]] = {}
        self.failure = ""
        self.reports: list[tuple[str, float]] = []
        self.momentum: dict[str, Any] = {}
        self.changed = threading.Condition()
        self.waiting: list[tuple[int, str, int, np.ndarray, Callable[[str], None]]] = []
        self.barriers: dict[int, int] = {}
        self.tasks: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self.nodes = [FakeNode(self, i) for i in range(workers + observer)]
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.tasks.put(None)
        self.thread.join(5)

    def _run(self) -> None:
        while (task := self.tasks.get()) is not None:
            self.goes_on.wait()
            task()

    # --- on the I/O thread ----------------------------------------------------------------------------------------
    def declare(self, worker: int, name: str, array: np.ndarray) -> None:
        with self.changed:
            known = self.keys.setdefault(name, Key(array.shape, array.dtype.name))
            if (known.shape, known.dtype) != (array.shape, array.dtype.name):
                self._fail(
                    f"key {name!r}: worker {worker} has {array.shape} {array.dtype.name}, others have "
                    f"{known.shape} {known.dtype}"
                )
            if self._is_authority(worker) and not known.values:
                known.values.append(array.copy())
            self.changed.notify_all()
        self._serve()

    def push(self, worker: int, name: str, array: np.ndarray, done: Callable[[str], None]) -> None:
        with self.changed:
            key = self.keys.setdefault(name, Key(array.shape, array.dtype.name))
            if not key.values and not self._optimizer():
                key.values.append(np.zeros(key.shape, key.dtype))
            if worker < self.num_workers:
                key.pushed[worker] = round_ = key.pushed.get(worker, 0) + 1
                key.parts.setdefault(round_, {})[worker] = array.copy()
                self._judge(name)
        done(self.failure)
        self._serve()

    def pull(self, worker: int, name: str, out: np.ndarray, done: Callable[[str], None]) -> None:
        key = self.keys.get(name)
        wanted = key.pushed.get(worker, 0) if key else 0
        self.waiting.append((worker, name, wanted, out, done))
        self._serve()

    def _judge(self, name: str) -> None:
        key = self.keys[name]
        while parts := key.parts.get(len(key.values)):
            round_ = len(key.values)
            owed = {w for w in range(self.num_workers) if w not in self.left or self.left[w].get(name, 0) >= round_}
            if owed - parts.keys():
                return
            total = np.sum([parts[w].astype(np.float32) for w in sorted(parts)], axis=0)
            key.values.append(self._update(name, key.values[-1], total).astype(key.dtype))

    def _update(self, name: str, weight: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        optimizer = self._optimizer()
        if not optimizer:
            return gradient
        g = gradient * optimizer.get("rescale_grad", 1.0)
        if optimizer["name"] == "sgd":
            m = self.momentum[name] = (
                optimizer.get("momentum", 0.0) * self.momentum.get(name, 0.0) - optimizer["learning_rate"] * g
            )
            return weight + m
        b1, b2 = optimizer.get("beta1", 0.9), optimizer.get("beta2", 0.999)
        m, v, t = self.momentum.get(name, (0.0, 0.0, 0))
        m, v, t = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g, t + 1
        self.momentum[name] = (m, v, t)
        step = optimizer["learning_rate"] * (1 - b2**t) ** 0.5 / (1 - b1**t)
        return weight - step * m / (np.sqrt(v) + optimizer.get("epsilon", 1e-8))

    def _optimizer(self) -> dict[str, Any]:
        text = self.configured.get("optimizer", "none")
        return {} if text == "none" else json.loads(text)

    def _serve(self) -> None:
        still = []
        for worker, name, wanted, out, done in self.waiting:
            key = self.keys.get(name)
            if self.failure:
                done(self.failure)
            elif key is not None and len(key.values) > wanted:
                if out.shape != key.shape or out.dtype.name != key.dtype:
                    done(f"key {name!r}: {out.shape} {out.dtype.name} to pull into, it is {key.shape} {key.dtype}")
                else:
                    out[...] = key.values[-1]
                    done("")
            else:
                still.append((worker, name, wanted, out, done))
        self.waiting = still

    def leave(self, worker: int) -> None:
        with self.changed:
            self.left[worker] = {n: k.pushed.get(worker, 0) for n, k in self.keys.items()}
            for name in self.keys:
                self._judge(name)
            self.changed.notify_all()
        self._serve()

    def _fail(self, message: str) -> None:
        self.failure = self.failure or message
        self.changed.notify_all()

    def fail(self, message: str) -> None:
        with self.changed:
            self._fail(message)
        self.tasks.put(self._serve)

    def _is_authority(self, worker: int) -> bool:
        return worker == (self.num_workers if len(self.nodes) > self.num_workers else 0)


class Ticket:
    def __init__(self, count: int) -> None:
        self._left, self._error, self._lock = count, "", threading.Lock()
        self._event = threading.Event()
        if not count:
            self._event.set()

    @property
    def done(self) -> bool:
        return self._event.is_set()

    def one(self, error: str) -> None:
        with self._lock:
            self._left -= 1
            self._error = self._error or error
            if self._left == 0 or error:
                self._event.set()

    def wait(self, timeout_s: float = -1.0) -> None:
        if not self._event.wait(DEFAULT_WAIT_S if timeout_s < 0 else timeout_s):
            raise Timeout("the fake worker waited for a value of the fake server")
        if self._error:
            raise Error(self._error)


class FakeNode:
    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster, self.number = cluster, number
        self.rank = self.global_rank = number
        self.num_workers = self.num_all_workers = cluster.num_workers
        self.party, self.name = "a", f"a.worker{number}"
        self.closed = self.failed = False

    @property
    def failure(self) -> str:
        return self.cluster.failure

    def _later(self, task: Callable[[], None]) -> None:
        if self.closed:
            raise Error("the node is closed")
        if self.cluster.failure:
            raise Error(self.cluster.failure)
        self.cluster.tasks.put(task)

    def configure(self, what: str, value: str, timeout_s: float = -1.0) -> None:
        known = self.cluster.configured.setdefault(what, value)
        if known != value:
            raise Refused(f"{what}: {value} given by {self.name}, {known} before")

    def init(self, names: Sequence[str], arrays: Sequence[np.ndarray], timeout_s: float = -1.0) -> None:
        for name, array in zip(names, arrays, strict=True):
            self._later(lambda name=name, array=array: self.cluster.declare(self.number, name, array))
        with self.cluster.changed:

            def there() -> bool:
                declared = all(n in self.cluster.keys and self.cluster.keys[n].values for n in names)
                return bool(self.cluster.failure) or declared

            if not self.cluster.changed.wait_for(there, DEFAULT_WAIT_S if timeout_s < 0 else timeout_s):
                raise Timeout(f"{self.name} waited for the authority to declare {', '.join(names)}")
        if self.cluster.failure:
            raise Error(self.cluster.failure)

    def push(self, names: Sequence[str], arrays: Sequence[Any], priorities: Sequence[int] = ()) -> Ticket:
        ticket = Ticket(len(names))
        for n, a in zip(names, arrays, strict=True):
            self._later(lambda n=n, a=a: self.cluster.push(self.number, n, a, ticket.one))
        return ticket

    def pull(self, names: Sequence[str], outs: Sequence[Any], priorities: Sequence[int] = ()) -> Ticket:
        ticket = Ticket(len(names))
        for n, o in zip(names, outs, strict=True):
            self._later(lambda n=n, o=o: self.cluster.pull(self.number, n, o, ticket.one))
        return ticket

    def push_pull(
        self, names: Sequence[str], arrays: Sequence[Any], outs: Sequence[Any], priorities: Sequence[int] = ()
    ) -> Ticket:
        self.push(names, arrays, priorities)
        return self.pull(names, outs, priorities)

    def push_address(
        self, name: str, address: int, shape: tuple[int, ...], dtype: str, priority: int, done: Callable[[str], None]
    ) -> None:
        self._later(lambda: self.cluster.push(self.number, name, _view(address, shape, dtype), done))

    def pull_address(
        self, name: str, address: int, shape: tuple[int, ...], dtype: str, priority: int, done: Callable[[str], None]
    ) -> None:
        self._later(lambda: self.cluster.pull(self.number, name, _view(address, shape, dtype), done))

    def barrier(self, world: bool = False, timeout_s: float = -1.0) -> None:
        cluster = self.cluster
        with cluster.changed:
            mine = cluster.barriers[self.number] = cluster.barriers.get(self.number, 0) + 1
            cluster.changed.notify_all()
            here = lambda: sum(n >= mine for n in cluster.barriers.values()) >= cluster.num_workers  # noqa: E731
            if not cluster.changed.wait_for(here, DEFAULT_WAIT_S if timeout_s < 0 else timeout_s):
                raise Timeout(f"{self.name} waited in a barrier")

    def report(self, name: str, value: float) -> None:
        self.cluster.reports.append((name, value))

    def leave(self, timeout_s: float = -1.0) -> None:
        gone = threading.Event()
        self._later(lambda: (self.cluster.leave(self.number), gone.set()))  # type: ignore[func-returns-value]
        gone.wait(DEFAULT_WAIT_S)

    def fail(self, message: str) -> None:
        self.failed = True
        self.cluster.fail(message)

    def close(self) -> None:
        self.closed = True


def _view(address: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = (ctypes.c_char * count).from_address(address)
    return np.frombuffer(raw, dtype=dtype).reshape(shape)
