"""One of our workers in the kv benchmark: its node spec is the first line of standard input."""

import sys

import numpy as np

from geomx import node
from geomx.bench.cases import CASES, WORKERS_SUM, Ways, serve
from geomx.kv import Store
from geomx.spec import from_json


def main() -> None:
    spec = from_json(sys.stdin.readline())
    built = node.build(spec)
    built.start()
    store = Store(built.node, spec)

    def prepare(case: str) -> Ways:
        count, length = CASES[case]
        names = [f"{case}.{i}" for i in range(count)]
        values = [np.full(length, spec.rank + 1, np.float32) for _ in names]
        outs = [np.zeros(length, np.float32) for _ in names]
        store.init(names, outs)

        def one_round() -> None:
            store.push_pull(names, values, outs)

        one_round()
        if not all((out == WORKERS_SUM).all() for out in outs):
            raise RuntimeError(f"{case}: expected {WORKERS_SUM} everywhere but got {outs[0].flat[0]}")
        return {"push_pull": one_round}

    serve(prepare)
    store.close()


if __name__ == "__main__":
    main()
