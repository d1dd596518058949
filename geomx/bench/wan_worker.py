"""One worker of the wan benchmark, the same code for both sides but for the store that it makes.

python -m geomx.bench.wan_worker ours|stock MODEL BATCH LEARNING_RATE SEED: ours reads its node spec from the first line
of standard input, stock is told by DMLC_*; as a stock server or scheduler the import of MXNet is all that happens.
Commands are lines of JSON: {"steps": n, "way": one of WAYS} -> {"seconds", "loss"}; {"compute": n}, the same without
synchronising; {"evaluate": true} -> {"accuracy"}.
"""

import json
import os
import sys
import time
import warnings
from importlib import import_module
from typing import Any

import numpy as np

WAYS = ("push, pull", "pushpull")  # the seed's loops; and what MXNet's Trainer calls
PIXELS = 28


def main() -> None:
    warnings.simplefilter("ignore")
    kind, size = sys.argv[1:3]
    batch, rate, seed = int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
    if kind == "stock":
        if "bool" not in vars(np):
            setattr(np, "bool", np.bool_)  # noqa: B010
        import_module("mxnet")  # serves and ends here, unless this is a worker
    worker = Worker(kind, size, batch, rate, seed)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = worker.answer(command)
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), flush=True)
    if kind == "stock":
        os._exit(0)  # its own end waits for the other workers
    worker.close()


class Worker:
    """A model, its share of the data and a store."""

    def __init__(self, kind: str, size: str, batch: int, rate: float, seed: int) -> None:
        if kind == "ours":
            self._store, spec, self._close = _ours()
            rank, world = spec.world_rank, spec.world
        else:
            stock: Any = import_module("mxnet")
            self._store = stock.kv.create("dist_sync")
            rank, world = self._store.rank, self._store.num_workers
            self._close = lambda: None
        from geomx.config.task import Digits
        from geomx.frameworks.mxnet import MxnetAdapter  # registers our stores: after MXNet's own is made
        from geomx.mxnet import mx
        from geomx.tasks import digits

        task = digits.make(Digits(batch_size=batch, epochs=10_000, pixels=PIXELS, model=size))
        assert task.data is not None
        self._mx, self._data, self._scale = mx, task.data, 1.0 / world
        local = kind == "ours" and spec.settings["optimizer"] == "none"  # then sums come down, and workers step
        self._updates = local
        self.model = MxnetAdapter("cpu").model(task, seed, {"name": "adam", "learning_rate": rate} if local else None)
        self._batches = task.batches(rank, world, seed)
        self._keys = list(range(len(self.model.names)))
        if rank == 0 and kind == "stock":
            self._store.set_optimizer(mx.optimizer.Adam(learning_rate=rate))
        elif rank == 0 and not local:
            self._store.node.configure("optimizer", spec.settings["optimizer"])
        for key, weight in zip(self._keys, self.model.weights, strict=True):
            self._store.init(key, mx.nd.array(weight.asnumpy()))  # as oneDNN lays them out, MXNet's server can't take
        for key, weight in zip(self._keys, self.model.weights, strict=True):
            self._store.pull(key, weight, priority=-key)
        mx.nd.waitall()

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        if "evaluate" in command:
            return self.evaluate()
        synchronises = "steps" in command
        began = time.perf_counter()
        for _ in range(command["steps" if synchronises else "compute"]):
            batch = next(self._batches)
            self.model.backward(batch.x, batch.y, self._scale)
            if synchronises:
                self._synchronise(command.get("way", WAYS[0]))
                if self._updates:
                    self.model.update()
            loss = self.model.loss()
            self._mx.nd.waitall()
        return {"seconds": time.perf_counter() - began, "loss": loss}

    def evaluate(self) -> dict[str, Any]:
        return {"accuracy": self.model.evaluate(self._data.test_x, self._data.test_y)[1]}

    def close(self) -> None:
        self._close()

    def _synchronise(self, way: str) -> None:
        outs = self.model.gradients if self._updates else self.model.weights
        if way == "pushpull":
            for key, gradient, out in zip(self._keys, self.model.gradients, outs, strict=True):
                self._store.pushpull(key, gradient, out=out, priority=-key)
            return
        for key, gradient in zip(self._keys, self.model.gradients, strict=True):
            self._store.push(key, gradient, priority=-key)
        for key, out in zip(self._keys, outs, strict=True):
            self._store.pull(key, out, priority=-key)


def _ours() -> tuple[Any, Any, Any]:
    from geomx import node
    from geomx.mxnet import MxStore
    from geomx.spec import from_json

    spec = from_json(sys.stdin.readline())
    built = node.build(spec)
    built.start()
    store = MxStore(built.node, spec)
    return store, spec, store.close


if __name__ == "__main__":
    main()
