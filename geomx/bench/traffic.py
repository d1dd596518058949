"""traffic: bytes between parties, both ways, headers included, in real rounds of whole clusters in this process,
against the same rounds without compression. What workers pulled is compared, in the same run, with what the codecs make
of the same gradients outside of a cluster."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx import _core, plugins
from geomx.api import CodecChoice
from geomx.bench import Case
from geomx.codecs import codec_of
from geomx.errors import ConfigError
from geomx.tasks.shapes import MODELS
from geomx.testing import LocalCluster

ROUNDS, QUICK_ROUNDS = 3, 1
BOUND = 1000
Arrays = list[NDArray[Any]]

BSC = {"name": "bsc", "ratio": 0.01, "momentum": 0.0, "size_lower_bound": BOUND}
CASES: dict[str, dict[str, Any]] = {
    "bsc_1pct_f32": BSC,
    "bsc_1pct": {**BSC, "value_bits": 8},
    "bsc_01pct": {**BSC, "name": "mpq", "ratio": 0.001, "value_bits": 8},
}


def run(quick: bool) -> dict[str, Case]:
    """resnet50, 2 parties; parties_8_over_2: bsc_1pct's ratio with 8 parties against that with 2; mpq_small: mpq
    against bsc, tensors of at most 1,000 elements alone."""
    for name in ("bsc", "mpq"):
        if name not in plugins.choices("compression"):
            raise ConfigError(f"compression={name} is not installed: pip install plugins/{name}")
    rounds = QUICK_ROUNDS if quick else ROUNDS
    lengths = [math.prod(shape) for _, shape in MODELS["resnet50"]()]
    plain = measure(Job({"name": "none"}, lengths, 2, rounds))
    cases = {name: Case(measure(Job(c, lengths, 2, rounds)), plain, "bytes") for name, c in CASES.items()}
    few = lengths[:60] if quick else lengths
    many, two = (times_fewer(few, parties) for parties in (8, 2))
    cases["parties_8_over_2"] = Case(many, two, "times fewer bytes", "more")
    small = [n for n in lengths if n <= BOUND]
    mpq, bsc = (measure(Job({**BSC, "name": name}, small, 2, rounds)) for name in ("mpq", "bsc"))
    cases["mpq_small"] = Case(mpq, bsc, "bytes")
    return cases


def times_fewer(lengths: Sequence[int], parties: int) -> float:
    """bsc_1pct's ratio with so many parties, in one round."""
    none, bsc = (measure(Job(c, lengths, parties, 1)) for c in ({"name": "none"}, CASES["bsc_1pct"]))
    return none / bsc


@dataclass(frozen=True)
class Job:
    compression: dict[str, Any]
    lengths: Sequence[int]
    parties: int
    rounds: int

    def gradients(self, party: int, number: int) -> Arrays:
        random = np.random.default_rng((party, number))
        return [random.standard_normal(n, np.float32) for n in self.lengths]


def measure(job: Job) -> float:
    """Bytes of all rounds. Raises RuntimeError where workers got something else than the codecs say."""
    keys = list(range(len(job.lengths)))
    with LocalCluster([1] * job.parties, config={"compression": job.compression}, deadline_s=600) as cluster:

        def work(worker: Any) -> list[Arrays]:
            """What each round gave the first worker; of the others the last round is enough."""
            party, rounds = cluster.workers.index(worker), []
            out = [np.zeros(n, np.float32) for n in job.lengths]
            worker.init(keys, out)
            for number in range(job.rounds):
                worker.push_pull(keys, job.gradients(party, number), out)
                if party == 0:
                    rounds.append([o.copy() for o in out])
            return rounds or [out]

        pulled = cluster.run(work)
        counters = cluster.counters()
        part_length = cluster.config.scheduler["fifo"].part_elements
    _check(job, pulled, part_length)
    return counters["wan.up_bytes"] + counters["wan.down_bytes"]


def _check(job: Job, pulled: list[list[Arrays]], part_length: int) -> None:
    for got in pulled[1:]:
        if any((a != b).any() for a, b in zip(got[-1], pulled[0][-1], strict=True)):
            raise RuntimeError(f"{job.compression}: two workers pulled different values")
    by_codecs = ByCodecs(job, part_length)
    for number, values in enumerate(pulled[0]):
        wrong = sum(_differing(a, b) for a, b in zip(values, by_codecs.round(number), strict=True))
        if wrong:
            raise RuntimeError(
                f"{job.compression}: {wrong} pulled values are not what the codecs make of the gradients"
            )


def _differing(got: NDArray[Any], expected: NDArray[Any]) -> int:
    return int((~np.isclose(got, expected, rtol=1e-4, atol=1e-5)).sum())


class ByCodecs:
    """The same rounds without a network: up, sum, down."""

    def __init__(self, job: Job, part_length: int) -> None:
        self._job, self._part_length = job, part_length
        self._options = plugins.options("compression", dict(job.compression))
        self._policy = self._options.policy()
        self._made: dict[tuple[str, int], _core.Codec] = {}

    def round(self, number: int) -> Arrays:
        sums = self._job.gradients(0, number)
        given = [self._job.gradients(party, number) for party in range(self._job.parties)]
        for key, total in enumerate(sums):
            total[:] = 0
            for party, gradients in enumerate(given):
                total += self._passed(gradients[key], key, party, "up")
        return [self._passed(total, key, 0, "down") for key, total in enumerate(sums)]

    def _passed(self, values: NDArray[Any], key: int, party: int, direction: str) -> NDArray[Any]:
        choice = self._policy.choose(f"#{key}", len(values), "float32", "wan", direction)
        codec, out = self._codec(choice, party), np.zeros_like(values)
        for i, data in enumerate(codec.encode_parts(values, self._part_length, slot=key, direction=direction)):
            codec.accumulate(data, out[i * self._part_length :][: self._part_length], direction=direction)
        return out

    def _codec(self, choice: CodecChoice, party: int) -> _core.Codec:
        """Slots are called like the cluster's keys, so that lots among equal magnitudes fall alike."""
        if (choice.name, party) not in self._made:
            self._made[choice.name, party] = codec_of(self._options, choice)
        return self._made[choice.name, party]
