"""`python -m geomx.bench p3`: iterations of a model whose layers take equally long, over a WAN; as root between network
namespaces, over the kernel's TCP (`--case netns`), else over the user-space shaper (`--case shaper`).

Two parties of one worker, the optimizer on the server. Computing is waiting (a third forward, the rest backward, layer
by layer); communicating takes as long as computing and at least ten round trips. Compared are three ways to overlap:
none (a layer's round begins after the backward pass, the next pass when all are over), the backward pass only, and p3.
The first two use scheduler=fifo. The bound is max(compute, bytes over rate) and a round trip, where bytes are those of
the packets: 52 of 1,500 are headers.
"""

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from geomx.bench import Case
from geomx.config import Hips
from geomx.config.network import Network
from geomx.errors import ConfigError
from geomx.wan.plan import resolve
from geomx.wan.router import Router, missing

LAYERS, ELEMENTS = 24, 80_000
RATE_MBIT, DELAY_MS = 100.0, 25.0
COMPUTE_S = LAYERS * ELEMENTS * 4 * 1500 / 1448 / (RATE_MBIT * 1e6 / 8)
FAST = {"rate_mbit": 4 * RATE_MBIT, "down_mbit": 4 * RATE_MBIT}  # the central party's link
NETWORK = {"rate_mbit": RATE_MBIT, "delay_ms": DELAY_MS, "access": {"central": FAST}}
OPTIMIZER = {"where": "server", "name": "sgd", "learning_rate": 0.01}
CONGESTION = "bbr"
WARM_UP = 2
# Scheduler, overlap, the scheduler's options. Without overlap fifo is at its best with all of a round given to TCP.
SIDES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "p3": ("p3", "all", {}),
    "none": ("fifo", "none", {"credit_kb": 64_000}),
    "backward": ("fifo", "backward", {}),
}


@dataclasses.dataclass
class Layers:
    """A task of tensors, as `geomx.tasks.Task`."""

    compute_s: float = COMPUTE_S
    data: Any = None

    def __post_init__(self) -> None:
        self.tensors = [(f"layer{i}", (ELEMENTS,)) for i in range(LAYERS)]


def run(quick: bool) -> dict[str, Case]:
    return (shaper if missing() else netns)(quick)


def netns(quick: bool) -> dict[str, Case]:
    """Raises ConfigError where there can be no namespaces."""
    if why := missing():
        raise ConfigError(f"bench p3 --case netns: {why}; use --case shaper")
    print(f"between network namespaces, TCP {CONGESTION}")
    return _compare(measure_netns, quick)


def shaper(quick: bool) -> dict[str, Case]:
    print("over the user-space shaper, in one process")
    return _compare(measure, quick)


ALONE = {"netns": netns, "shaper": shaper}


def _compare(measure: Callable[[str, str, int, dict[str, Any]], list[float]], quick: bool) -> dict[str, Case]:
    """Sides take turns; the median of all iterations of each counts."""
    found: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(1 if quick else 3):
        for name, (scheduler, overlap, options) in SIDES.items():
            found[name] += measure(scheduler, overlap, 8 if quick else 12, options)
    seconds = {name: statistics.median(times) for name, times in found.items()}
    bound = COMPUTE_S + 2 * DELAY_MS / 1e3
    print(f"{LAYERS} layers of {ELEMENTS:,} float32, {RATE_MBIT:g} Mbit/s, {2 * DELAY_MS:g} ms round trip; compute = "
          f"bytes over rate = {COMPUTE_S:.3f} s, {COMPUTE_S / (2 * DELAY_MS / 1e3):.0f} round trips")  # fmt: skip
    print(f"{len(found['p3'])} iterations a side")
    return {
        "bound_share": Case(seconds["p3"], bound, "s"),
        "over_none": Case(seconds["p3"], seconds["none"], "s"),
        "over_backward": Case(seconds["p3"], seconds["backward"], "s"),
    }


def measure(scheduler: str, overlap: str, iterations: int, options: dict[str, Any] | None = None) -> list[float]:
    """Seconds of each iteration over the shaper: from one begin of the backward pass's last round to the next."""
    from geomx import _core
    from geomx.testing import LocalCluster

    config = {
        "network": NETWORK,
        "scheduler": {scheduler: options or {}},
        "sync": {"name": "fsa", "optimizer": OPTIMIZER},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "links")
        _core.make_wan_links(file, 3)
        cluster = LocalCluster([1, 1], config=config, deadline_s=120,
                               change=lambda spec: dataclasses.replace(spec, links=file))  # fmt: skip
        with cluster:
            return cluster.run(lambda worker: iterate(worker, overlap, iterations))[0]


def measure_netns(scheduler: str, overlap: str, iterations: int, options: dict[str, Any] | None = None) -> list[float]:
    """The same between namespaces, each node a process."""
    from geomx.bench.wan_sides import Job, Ours  # bring in the core: not to list what there is

    class Layered(Ours):
        def _arguments(self, kind: str, job: Job) -> list[str]:
            return ["-m", "geomx_p3.bench_worker", overlap, str(iterations)]

    parties: list[Any] = [{"name": "a"}, {"name": "b"}]
    network = Network(**NETWORK)
    wan = resolve(network, Hips(parties=parties))
    router = Router(wan, CONGESTION, 1)
    side = None
    try:
        side = Layered(router, network, wan, Job(1, "", 0.01), scheduler={scheduler: options or {}},
                       sync={"name": "fsa", "optimizer": OPTIMIZER})  # fmt: skip
        answers = [worker.answer() for worker in side.workers]
    finally:
        if side is not None:
            side.stop()
        router.close()
    return list(answers[0]["seconds"])


def iterate(store: Any, overlap: str, iterations: int) -> list[float]:
    from geomx.frameworks.numpy import NumpyAdapter
    from geomx.tasks import SEED_HIDDEN, Batch
    from geomx.train import Loop

    task: Any = Layers()
    task.hidden = SEED_HIDDEN
    model = NumpyAdapter().model(task, 1, None)
    if store.global_rank == 0:
        store.node.configure("optimizer", store.spec.settings["optimizer"])
    store.init(model.names, model.weights)
    store.pull(model.names, model.weights)
    loop = Loop(store, model, task, lambda kind, row: None, on_server=True, scale=0.5, eval_every=0, overlap=overlap)
    ends = []
    for _ in range(WARM_UP + iterations + 1):
        loop.step(Batch(None, None, 1))
        ends.append(time.perf_counter())
    loop.end()
    return [float(s) for s in np.diff(ends[WARM_UP:])]
