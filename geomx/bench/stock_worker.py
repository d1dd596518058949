"""MXNet's own roles in the kv benchmark; with DMLC_ROLE=server or scheduler the import is all that happens.

Push and pull one by one, lists of both, and pushpull are offered; whoever commands takes the fastest. Without an
optimizer its sums are right in the first round only (MXNet 1.9.1 adds later rounds to what it holds), so that one is
checked.
"""

import os
import sys
import warnings
from importlib import import_module
from typing import Any

import numpy as np

from geomx.bench.cases import CASES, WORKERS_SUM, Ways, serve


def main() -> None:
    warnings.simplefilter("ignore")
    if "bool" not in vars(np):
        setattr(np, "bool", np.bool_)  # noqa: B010
    mx: Any = import_module("mxnet")  # serves and ends here, unless this is a worker

    store = mx.kv.create("dist_sync")
    first_key = iter(range(0, 1 << 30, 1 << 20))

    def prepare(case: str) -> Ways:
        count, length = CASES[case]
        begin = next(first_key)
        keys = list(range(begin, begin + count))
        values = [mx.nd.full((length,), store.rank + 1) for _ in keys]
        outs = [mx.nd.zeros((length,)) for _ in keys]
        store.init(keys, outs)
        ways = _ways(store, keys, values, outs)
        ways["lists"]()
        if not all((out.asnumpy() == WORKERS_SUM).all() for out in outs):
            raise RuntimeError(f"{case}: expected {WORKERS_SUM} everywhere but got {outs[0].asnumpy().flat[0]}")
        return ways

    serve(prepare)
    sys.stdout.flush()
    os._exit(0)  # its own end waits for the other worker


def _ways(store: Any, keys: list[int], values: list[Any], outs: list[Any]) -> Ways:
    def wait() -> None:
        for out in outs:
            out.wait_to_read()

    def one_by_one() -> None:
        for i, (key, value, out) in enumerate(zip(keys, values, outs, strict=True)):
            store.push(key, value, priority=-i)
            store.pull(key, out, priority=-i)
        wait()

    def lists() -> None:
        store.push(keys, values)
        store.pull(keys, outs)
        wait()

    def push_pull() -> None:
        store.pushpull(keys, values, outs)
        wait()

    return {"one by one": one_by_one, "lists": lists, "push_pull": push_pull}


if __name__ == "__main__":
    main()
