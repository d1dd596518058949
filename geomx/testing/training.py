"""Short work on a whole cluster in this process, for suites and tests: training on real digits, sums that are known."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.testing.cluster import LocalCluster, Worker

Config = dict[str, Any]
Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


def train(config: Mapping[str, Any], parties: Sequence[int] = (1, 1), epochs: int = 4, **more: Any) -> list[Config]:
    """Trains the numpy model on digits with these groups of the configuration; what each worker returns, as
    `geomx.train.run_worker` does. The first knows the accuracy. more: as LocalCluster takes it."""
    from geomx.train import run_worker

    def work(worker: Worker) -> Config:
        result = run_worker(worker.spec, worker.node, lambda kind, body: None)
        worker._ended = True  # it has left
        return result

    task = {"name": "digits", "epochs": epochs, "eval_every": 0}
    with LocalCluster(parties, config={"task": task, "framework": {"name": "numpy"}, **config}, **more) as cluster:
        return cluster.run(work)


def summed(cluster: LocalCluster, lengths: Sequence[int], rounds: int = 4, drain: int = 0) -> list[list[Pair]]:
    """Each worker pushes small whole numbers, then zeros for `drain` rounds: for each worker and tensor, what all gave
    and what it got, each added up over the rounds. They are equal where nothing is lossy."""

    def work(worker: Worker) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        seed = cluster.workers.index(worker)
        names = [f"t{i}" for i in range(len(lengths))]
        outs = [np.zeros(n, np.float32) for n in lengths]
        pairs = [(np.zeros(n), np.zeros(n)) for n in lengths]
        worker.init(names, outs)
        for number in range(rounds + drain):
            random = np.random.default_rng((seed, number))
            pushed = [(random.integers(-8, 9, n) * (number < rounds)).astype(np.float32) for n in lengths]
            worker.node.push_pull(names, pushed, outs).wait(cluster.deadline_s)
            for (given, got), gradient, out in zip(pairs, pushed, outs, strict=True):
                given += gradient
                got += out
        return pairs

    by_worker = cluster.run(work)
    totals = [np.sum([pairs[i][0] for pairs in by_worker], axis=0) for i in range(len(lengths))]
    return [[(total, got) for total, (_, got) in zip(totals, pairs, strict=True)] for pairs in by_worker]


def check_sums(results: list[list[Pair]], error: float = 0.0) -> None:
    """Every worker got the sum of what all pushed."""
    for number, pairs in enumerate(results):
        for total, got in pairs:
            apart = np.abs(got - total).max(initial=0)
            assert apart <= error, (
                f"a tensor of {len(total)} elements: worker {number} was expected to get the sum of all pushes"
                f"{f' within {error:g}' if error else ''}, it is {apart:g} off in {np.count_nonzero(got != total)}"
            )
