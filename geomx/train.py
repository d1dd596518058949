"""The training loop of one worker; knows neither framework nor network.

Each worker pushes the gradient of its batch's mean loss divided by the number of workers, so that what arrives at an
optimizer is the mean over all, on the servers as well as on the workers. An optimizer with a `rescale_grad` of its own
gets the undivided gradients and scales them itself.

Workers whose batches end leave; the others go on without them. Nothing is rescaled then.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx import plugins
from geomx.config import load
from geomx.config.techniques import Optimizer
from geomx.config.whole import optimizer as setting_of
from geomx.frameworks import Adapter, Model
from geomx.kv import Store
from geomx.spec import NodeSpec, setting
from geomx.tasks import Batch, Task

Emit = Callable[[str, dict[str, Any]], None]


def run_worker(spec: NodeSpec, node: Any, emit: Emit) -> dict[str, Any]:
    """Trains on a started node as `spec.config` says, to the end, and leaves. See geomx.spec for what it emits and
    returns; an observing master worker only declares the tensors. Raises Error when the run failed."""
    config = load(spec.config)
    task: Task = plugins.target(config.task)(config.task)
    adapter: Adapter = plugins.target(config.framework)(config.framework)
    store = adapter.store(node, spec)
    optimizer = config.sync.optimizer
    model = adapter.model(task, spec.seed, _local(optimizer))
    _configure(store, optimizer, spec)
    _declare(store, model)
    if not store.trains:
        store.leave()
        return {"weights_hash": "", "accuracy": None, "loss": 0.0, "rounds": 0, "samples": 0}
    loop = Loop(
        store,
        model,
        task,
        emit,
        on_server=optimizer.where == "server",
        scale=_scale(store, optimizer),
        eval_every=getattr(config.task, "eval_every", 0),
        traced=config.trace.rounds,
    )
    for batch in task.batches(*_place(spec, store), spec.seed):
        loop.step(batch)
    return loop.end()


@dataclass
class Loop:
    """Steps of one worker."""

    store: Store
    model: Model
    task: Task
    emit: Emit
    on_server: bool  # a pull gives weights; else summed gradients
    scale: float
    eval_every: int
    traced: Sequence[int] = ()  # first and last step that a timeline wants
    overlap: str = "all"  # "backward": a pass begins when all weights are there; "none": rounds begin after it too
    rounds: int = 0
    samples: int = 0
    loss: float = 0.0
    accuracy: float | None = None
    test_loss: float | None = None

    def __post_init__(self) -> None:
        self._began = time.perf_counter()
        self._rounds: dict[int, Callable[[], None]] = {}  # layer -> what waits for its round, until somebody has
        self._pushed: set[int] = set()  # in this step
        self._waited_s = 0.0  # in this step, within the passes
        self.model.watch.before = self._need
        if self.overlap != "none":
            self.model.watch.made = self._push
        self._judges = self.store.global_rank == 0 and self.task.data is not None

    def step(self, batch: Batch) -> None:
        """One batch: gradients, their round, the row about it. A layer's round begins when its gradient is there, and
        is waited for when the next pass is about to read its weight; where the framework's engine looks after that,
        only the first layer's is waited for here."""
        model, store = self.model, self.store
        began = store.step_began_at = time.perf_counter()
        self._waited_s = 0.0
        self._pushed.clear()
        model.backward(batch.x, batch.y, self.scale)
        for layer in reversed(range(len(model.names))):
            if layer not in self._pushed:
                self._push(layer)
        self.loss = model.loss()
        in_pass_s = max(self._waited_s, store.values_ready_at - began)
        model.ready()
        if self.overlap != "all":
            self._finish()
        ready = time.perf_counter()
        self.rounds += 1
        self.samples += batch.samples
        computed = max(began + in_pass_s, min(store.gradients_ready_at, ready))
        if self.traced and self.traced[0] <= self.rounds <= self.traced[1]:
            self._trace(began, max(began, store.values_ready_at), computed, ready)
        compute_s = computed - began - in_pass_s
        self._tell(batch, compute_s, ready - began - compute_s)

    def _push(self, layer: int) -> None:
        model = self.model
        target = model.weights[layer] if self.on_server else model.gradients[layer]
        wait = self.store.start_round(model.names[layer], model.gradients[layer], target, priority=-layer)
        self._pushed.add(layer)
        if self.store.waits_by_itself and not self.on_server:
            model.update(layer)
        self._rounds[layer] = wait

    def _need(self, layer: int) -> None:
        if (wait := self._rounds.pop(layer, None)) is None:
            return
        began = time.perf_counter()
        wait()
        if not self.on_server and not self.store.waits_by_itself:
            self.model.update(layer)
        self._waited_s += time.perf_counter() - began

    def _finish(self) -> None:
        """All rounds that have begun are over."""
        for layer in sorted(self._rounds):
            self._need(layer)

    def end(self) -> dict[str, Any]:
        """The result, after leaving."""
        self._finish()
        values = self.model.values()
        if self._judges and self.accuracy is None:
            self._evaluate()
        self.store.leave()
        return {
            "weights_hash": weights_hash(values),
            "accuracy": self.accuracy,
            "loss": self.loss,
            "test_loss": self.test_loss,
            "rounds": self.rounds,
            "samples": self.samples,
        }

    def _trace(self, began: float, held_until: float, computed: float, ready: float) -> None:
        """For geomx.timeline; perf_counter is the monotonic clock, the core's."""
        held_until = min(held_until, computed)
        steps = [("wait", began, held_until), ("compute", held_until, computed), ("wait", computed, ready)]
        lines = [f"step {kind} {self.rounds} {int(a * 1e9)} {int(b * 1e9)}\n" for kind, a, b in steps if b > a]
        self.emit("trace", {"lines": "".join(lines)})

    def _tell(self, batch: Batch, compute_s: float, wait_s: float) -> None:
        row = {
            "step": self.rounds,
            "time": time.perf_counter() - self._began,
            "loss": self.loss,
            "samples": batch.samples,
            "compute_s": compute_s,
            "wait_s": wait_s,
        }
        self.accuracy = None
        if self._judges and self.eval_every and self.rounds % self.eval_every == 0:
            row |= self._evaluate()
        if np.isfinite(self.loss):
            self.store.report("loss", self.loss)
        self.emit("round", row)

    def _evaluate(self) -> dict[str, float]:
        data = self.task.data
        assert data is not None
        self._finish()
        self.test_loss, self.accuracy = self.model.evaluate(data.test_x, data.test_y)
        return {"accuracy": self.accuracy, "test_loss": self.test_loss}


def weights_hash(values: list[NDArray[np.float32]]) -> str:
    """sha256 over all weights' bytes, in the order of their keys."""
    found = hashlib.sha256()
    for value in values:
        found.update(np.ascontiguousarray(value).tobytes())
    return found.hexdigest()


def _local(optimizer: Optimizer) -> Mapping[str, Any] | None:
    """Name and parameters where the workers have it."""
    if optimizer.where == "server":
        return None
    used = optimizer.used.get(optimizer.name, ("learning_rate", "wd"))
    return {"name": optimizer.name, **{p: getattr(optimizer, p) for p in used}, **optimizer.extra}


def _configure(store: Store, optimizer: Optimizer, spec: NodeSpec) -> None:
    """Said by who may be the authority; the same from both is accepted."""
    if optimizer.where == "server" and (spec.is_master or store.global_rank == 0):
        store.node.configure("optimizer", spec.settings.get("optimizer", setting(setting_of(optimizer))))


def _declare(store: Store, model: Model) -> None:
    """After this all workers have the authority's weights."""
    store.init(model.names, model.weights)
    if store.trains:
        store.pull(model.names, model.weights)


def _scale(store: Store, optimizer: Optimizer) -> float:
    return 1.0 if optimizer.where == "server" and "rescale_grad" in optimizer.extra else 1.0 / store.num_all_workers


def _place(spec: NodeSpec, store: Store) -> tuple[int, int]:
    """(which share of the data, of how many)"""
    rank = spec.world_rank if spec.world_rank >= 0 else store.global_rank
    return rank, spec.world or store.num_all_workers
