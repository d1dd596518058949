"""The worker of `python -m geomx.bench dgt --case share`: keeps several tensors' rounds under way, until it is told to
end. Reads its node's spec from the first line of standard input."""

import json
import sys
import threading

import numpy as np

from geomx import node
from geomx.kv import Store
from geomx.spec import from_json

KEYS, ELEMENTS = 8, 500_000


def main() -> None:
    spec = from_json(sys.stdin.readline())
    built = node.build(spec)
    built.start()
    with Store(built.node, spec, closer=built.close) as store:
        store.node.configure("optimizer", spec.settings["optimizer"])
        names = [f"k{i}" for i in range(KEYS)]
        rng = np.random.default_rng(1)
        gradients = [rng.standard_normal(ELEMENTS, np.float32) for _ in names]
        outs = [np.zeros(ELEMENTS, np.float32) for _ in names]
        store.init(names, outs)
        print(json.dumps({}), flush=True)
        is_over = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
        tickets = [None] * KEYS
        while not is_over.is_set():
            for i, ticket in enumerate(tickets):
                if ticket is None or ticket.done:
                    tickets[i] = store.node.push_pull([names[i]], [gradients[i]], [outs[i]], [0])
            is_over.wait(0.005)


if __name__ == "__main__":
    main()
