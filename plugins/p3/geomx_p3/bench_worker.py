"""One worker of `python -m geomx.bench p3 --case netns`: reads its node's spec from the first line of standard input,
runs the iterations, and says {"seconds": of each}. python -m geomx_p3.bench_worker OVERLAP ITERATIONS"""

import json
import sys

from geomx import node
from geomx.kv import Store
from geomx.spec import from_json
from geomx_p3.bench import iterate


def main() -> None:
    spec = from_json(sys.stdin.readline())
    built = node.build(spec)
    built.start()
    with Store(built.node, spec, closer=built.close) as store:
        print(json.dumps({"seconds": iterate(store, sys.argv[1], int(sys.argv[2]))}), flush=True)


if __name__ == "__main__":
    main()
