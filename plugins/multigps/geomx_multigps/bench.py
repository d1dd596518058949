"""`python -m geomx.bench multigps`: how much faster rounds are with 2 and 4 servers than with one where the servers'
links are the bottleneck, and how even their loads are.

All nodes in one process. Every server has a link of its own, by the user-space shaper; the two parties' links have no
limit, nothing is delayed. Tensors are declared by their first push; what is pushed is random, so bsc sends its share.
"""

import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from geomx.bench import Case
from geomx.config import load
from geomx.plan import Planner
from geomx.spec import NodeSpec
from geomx.wan.plan import Wan, Way

PARTIES = 2
LAYERS = [(f"layer{i}", elements) for i, elements in enumerate([4_000, 60_000, 250_000, 30_000, 600_000, 56_000])]
DENSE_BYTES_PER_S, BSC_BYTES_PER_S = 10e6, 0.2e6
QUEUE_BYTES = 1e6
WARM_UP = 1
BALANCE_ROUNDS = 20


def run(quick: bool) -> dict[str, Case]:
    """Sides take turns; the median of all rounds of each counts."""
    cases = {}
    for compression, rate, ending in (("none", DENSE_BYTES_PER_S, ""), ("bsc", BSC_BYTES_PER_S, "_bsc")):
        found: dict[int, list[float]] = {1: [], 2: [], 4: []}
        for _ in range(1 if quick else 3):
            for servers, times in found.items():
                times += measure(servers, compression, rate, 3 if quick else 8)
        seconds = {servers: statistics.median(times) for servers, times in found.items()}
        for servers in (2, 4):
            cases[f"servers_{servers}{ending}"] = Case(seconds[servers], seconds[1], "s")
    cases["balance"] = balance()
    return cases


def measure(servers: int, compression: str, bytes_per_s: float, rounds: int) -> list[float]:
    """Seconds of each round, as the slower party sees it."""
    from geomx import _core
    from geomx.node import Built
    from geomx.testing import LocalCluster
    from geomx.wan.shaper import shape

    wan = _links(servers, bytes_per_s)

    class Shaped(LocalCluster):
        def _make(self, spec: NodeSpec) -> Built:
            built = super()._make(spec)
            built.node.shape_wan(shape(wan, file, _place_of(spec), 1))
            return built

    config = {"topology": {"name": "multigps"}, "compression": {"name": compression}}
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "links")
        _core.make_wan_links(file, len(wan.parties))
        with Shaped([1] * PARTIES, global_servers=servers, config=config, deadline_s=120) as cluster:
            times = cluster.run(lambda worker: _rounds(worker, rounds))
    return [max(both) for both in zip(*times, strict=True)][WARM_UP:]


def _rounds(store: Any, rounds: int) -> list[float]:
    draw = np.random.default_rng(store.global_rank)
    names = [name for name, _ in LAYERS]
    values = [draw.standard_normal(elements, np.float32) for _, elements in LAYERS]
    outs = [np.zeros(elements, np.float32) for _, elements in LAYERS]
    times = []
    for _ in range(WARM_UP + rounds):
        store.barrier(world=True)
        began = time.perf_counter()
        store.push_pull(names, values, outs)
        times.append(time.perf_counter() - began)
    return times


def _links(servers: int, bytes_per_s: float) -> Wan:
    """A party for each server, so that each has a link."""
    names = (*(f"party{i}" for i in range(PARTIES)), "elsewhere", *(f"global_server{i}" for i in range(servers)))
    rates = tuple(bytes_per_s if name.startswith("global_server") else 0.0 for name in names)
    ways = ((Way(0.0, 0.0, 0.0, 1.0),) * len(names),) * len(names)
    return Wan(names, rates, rates, ways, (QUEUE_BYTES,) * len(names), (), False)


def _place_of(spec: NodeSpec) -> str:
    if spec.role == "global_server":
        return spec.name
    return spec.party if spec.party.startswith("party") else "elsewhere"


def balance() -> Case:
    """The worst of the known models as they are placed, and of the seed's network as it was sent, dense and with bsc,
    with 2 and 4 servers, declared as a list."""
    worst = {}
    for topology in ("multigps", "hips"):
        figures = {}
        for compression in ("none", "bsc"):
            for servers in (2, 4):
                loads = _loads(topology, compression, servers)
                loads["seed_cnn as sent"] = _sent(topology, compression, servers)
                for model, held in loads.items():
                    figures[model, compression, servers] = max(held) * servers / sum(held)
        worst[topology] = max(figures.values())
        if topology == "multigps":
            for (model, compression, servers), figure in figures.items():
                print(f"largest over mean bytes: {model}, {compression}, {servers} servers: {figure:.3f}")
    return Case(worst["multigps"], worst["hips"], "largest/mean")


def _loads(topology: str, compression: str, servers: int) -> dict[str, list[float]]:
    """Bytes upwards by server, for each model, as its codec is expected to make them."""
    from geomx_multigps.models import MODELS

    found = {}
    config = load({"topology": {"name": topology, "global_servers": servers}, "compression": {"name": compression}})
    for model, tensors in MODELS.items():
        planner = Planner(config)
        held = [0.0] * servers
        planner.announce([(name, math.prod(dims), "float32") for name, dims in tensors])
        for name, dims in tensors:
            width = config.compression.bytes_per_element(name, math.prod(dims), "float32")
            for shard in planner.shards(name, math.prod(dims), servers):
                held[shard.server] += shard.length * width
        found[model] = held
    return found


def _sent(topology: str, compression: str, servers: int) -> list[float]:
    """Bytes that each server was sent and has sent in rounds of the seed's network, framing included."""
    from geomx.testing import LocalCluster
    from geomx_multigps.models import MODELS

    names = [name for name, _ in MODELS["seed_cnn"]]
    config = {"topology": {"name": topology}, "compression": {"name": compression}}
    with LocalCluster([1] * PARTIES, global_servers=servers, config=config) as cluster:

        def work(store: Any) -> None:
            draw = np.random.default_rng(store.global_rank)
            outs = [np.zeros(dims, np.float32) for _, dims in MODELS["seed_cnn"]]
            store.init(names, outs)
            for _ in range(BALANCE_ROUNDS):
                store.push_pull(names, [draw.standard_normal(out.shape, np.float32) for out in outs], outs)

        cluster.run(work)
        found = [0.0] * servers
        for name, node in cluster.nodes.items():
            for tier, to, _, account, _, _, payload, framing in node.ledger()["sent"]:
                if tier == "wan" and account in ("up", "down"):
                    server = name if account == "down" else to
                    found[int(server[-1])] += payload + framing
    return found
