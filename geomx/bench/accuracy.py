"""accuracy: what compression costs in accuracy and training loss, at equal samples, against the same runs without.

Real training (framework=numpy) with the real codecs, whole rounds in one process and without a network: each party's
gradients go up through a codec of its own, are summed, and come down through one that all share, as sums where workers
have the optimizer, and where servers have it as weights or as differences to what the parties hold. Runs are paired:
the same seed gives the same start and the same batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx import _core, plugins
from geomx.bench import Case
from geomx.codecs import codec_of
from geomx.config import load
from geomx.errors import ConfigError
from geomx.frameworks.numpy import NumpyAdapter, local_optimizer

Arrays = list[NDArray[Any]]

TECHNIQUES: dict[str, dict[str, Any]] = {
    "bsc": {"name": "bsc"},
    "bsc_warm": {"name": "bsc", "warmup_rounds": 100},
    "bsc_16": {"name": "bsc", "value_bits": 16},
    "bsc_8": {"name": "bsc", "value_bits": 8},
    "fp16": {"name": "fp16"},
    "mpq": {"name": "mpq"},
}
# So that there are about 1,400 rounds, many times what an element waits at 1 % until it travels.
DIGITS = {2: {"name": "digits", "epochs": 60}, 8: {"name": "digits", "epochs": 240}}
TEXT = {2: {"name": "charlm", "characters": 400_000}, 8: {"name": "charlm", "characters": 1_600_000}}
LONG = 4  # times over the text; most is learnt in the first, while what waits in residuals is still missing
LOSS_SAMPLES = 20_000
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {"name": "adam", "learning_rate": 0.003},
    "sgd": {"name": "sgd", "learning_rate": 0.1},
    "sgd_fast": {"name": "sgd", "learning_rate": 0.3},  # 0.1 learns the text too slowly, 1 leaves it noisy
}
PLACES = (("adam", "worker"), ("adam", "server"), ("sgd", "worker"))


@dataclass(frozen=True)
class Setting:
    """What runs that are compared have in common."""

    task: dict[str, Any]
    parties: int
    split: str
    where: str  # of the optimizer: "server", or "worker"
    optimizer: str

    def __str__(self) -> str:
        times = self.task.get("epochs", 1)
        return f"{self.task['name']} x {times}, {self.parties} parties, {self.split}, {self.optimizer} on {self.where}s"


@dataclass
class Result:
    """Points of accuracy on the test data and mean loss on what was trained on."""

    accuracy: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)


def run(quick: bool) -> dict[str, Case]:
    """TASK_TECHNIQUE: points of accuracy with the technique and without, the mean over all settings and seeds; with
    --quick two seeds of one setting, else ten of digits in twelve settings and three of charlm in four."""
    for name in ("bsc", "fp16", "mpq"):
        if name not in plugins.choices("compression"):
            raise ConfigError(f"compression={name} is not installed: pip install plugins/{name}")
    if quick:
        plan = [(Setting(DIGITS[2] | {"epochs": 20}, 2, "iid", "worker", "adam"), 2)]
    else:
        plan = [(Setting(DIGITS[parties], parties, split, where, optimizer), 10)
                for parties in (2, 8) for optimizer, where in PLACES for split in ("iid", "class")]  # fmt: skip
        plan += [(Setting(TEXT[2] | {"epochs": LONG}, 2, "iid", "worker", "adam"), 3)]
        plan += [(Setting(TEXT[2], 2, "iid", "worker", "adam"), 3)]
        plan += [(Setting(TEXT[2] | {"epochs": LONG}, 2, "iid", "worker", "sgd_fast"), 3)]
        plan += [(Setting(TEXT[8], 8, "iid", "worker", "sgd_fast"), 3)]
    totals: dict[str, tuple[list[float], list[float]]] = {}
    for setting, seeds in plan:
        plain = results(setting, {"name": "none"}, range(1, seeds + 1))
        print(f"\n{setting}; none: {fmean(plain.accuracy):.2f} points, loss {fmean(plain.loss):.4f}; {seeds} seeds")
        for name, compression in TECHNIQUES.items():
            got = results(setting, compression, range(1, seeds + 1))
            print(f"  {name:8} {differences(got.accuracy, plain.accuracy, 2)} points, "
                  f"loss {differences(got.loss, plain.loss, 4)}", flush=True)  # fmt: skip
            ours, theirs = totals.setdefault(f"{setting.task['name']}_{name}", ([], []))
            ours += got.accuracy
            theirs += plain.accuracy
    return {name: Case(fmean(ours), fmean(theirs), "points", "more") for name, (ours, theirs) in totals.items()}


def differences(ours: Sequence[float], theirs: Sequence[float], digits: int) -> str:
    """Mean, standard deviation and range of the paired differences."""
    found = [a - b for a, b in zip(ours, theirs, strict=True)]
    spread = stdev(found) if len(found) > 1 else 0.0
    return (f"{fmean(found):+.{digits}f} (sd {spread:.{digits}f}, "
            f"{min(found):+.{digits}f} to {max(found):+.{digits}f})")  # fmt: skip


def results(setting: Setting, compression: dict[str, Any], seeds: Sequence[int]) -> Result:
    """One training for each seed."""
    out = Result()
    for seed in seeds:
        accuracy, loss = Training(setting, compression, seed).run()
        out.accuracy.append(100 * accuracy)
        out.loss.append(loss)
    return out


class Training:
    """Parties of one worker each. In a synchronous run all hold the same weights, so one model is enough."""

    def __init__(self, setting: Setting, compression: dict[str, Any], seed: int) -> None:
        config = load({"task": {**setting.task, "split": setting.split}, "framework": {"name": "numpy"}})
        self._setting, self._seed = setting, seed
        self._task = plugins.target(config.task)(config.task)
        self._on_server = setting.where == "server"
        optimizer = OPTIMIZERS[setting.optimizer]
        self.model: Any = NumpyAdapter().model(self._task, seed, None if self._on_server else optimizer)
        self._step = local_optimizer(optimizer)
        self._weights: Arrays = [w.copy() for w in self.model.weights]
        options = plugins.options("compression", compression)
        self._ways = [Way(options, "up", "gradients") for _ in range(setting.parties)]
        self._down = Way(options, "down", "parameters" if self._on_server else "gradients")

    def run(self) -> tuple[float, float]:
        """Accuracy on the test data, loss on the training data."""
        parties = self._setting.parties
        for batches in zip(*(self._task.batches(rank, parties, self._seed) for rank in range(parties)), strict=True):
            self.round(batches)
        data = self._task.data
        loss, _ = self.model.evaluate(data.train_x[:LOSS_SAMPLES], data.train_y[:LOSS_SAMPLES])
        return self.model.evaluate(data.test_x, data.test_y)[1], loss

    def round(self, batches: Sequence[Any]) -> None:
        sums = [np.zeros_like(g) for g in self.model.gradients]
        for way, batch in zip(self._ways, batches, strict=True):
            self.model.backward(batch.x, batch.y, 1 / len(batches))
            for key, (total, gradient) in enumerate(zip(sums, self.model.gradients, strict=True)):
                total += way.passed(key, gradient)
        for key, total in enumerate(sums):
            if self._on_server:
                self._step(key, self._weights[key], total)
                self.model.weights[key][...] = self._down.passed(key, self._weights[key], self.model.weights[key])
            else:
                self.model.gradients[key][...] = self._down.passed(key, total)
        if not self._on_server:
            self.model.update()


class Way:
    """One party's way up, or the way down that all share: what arrives of a tensor."""

    def __init__(self, options: Any, direction: str, answer: str) -> None:
        self._options, self._direction, self._answer = options, direction, answer
        self._policy = options.policy()
        self._codecs: dict[int, tuple[_core.Codec, bool]] = {}

    def passed(self, key: int, values: NDArray[Any], held: NDArray[Any] | None = None) -> NDArray[Any]:
        """held: what the receivers have, where values are weights."""
        flat = np.ascontiguousarray(values).reshape(-1)
        codec, is_delta = self._codec(key, len(flat))
        if is_delta and held is not None:
            flat = flat - held.reshape(-1)
        data = codec.encode(flat, slot=key, direction=self._direction)
        out = codec.decode(data, len(flat), "float32", direction=self._direction).reshape(values.shape)
        return held + out if is_delta and held is not None else out

    def _codec(self, key: int, length: int) -> tuple[_core.Codec, bool]:
        """As a node chooses: what carries no parameters is given differences, or nothing."""
        if key not in self._codecs:
            choice = self._policy.choose(f"#{key}", length, "float32", "wan", self._direction)
            codec, is_delta = codec_of(self._options, choice, self._answer), False
            if self._answer == "parameters" and not codec.carries("parameter"):
                is_delta = codec.carries("delta")
                codec = codec_of(self._options, choice, "deltas") if is_delta else _core.Codec("identity")
            self._codecs[key] = codec, is_delta
        return self._codecs[key]
