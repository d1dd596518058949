"""`python -m geomx.bench dgt`: rounds of the seed's network between parties whose links lose packets, against the plain
transport over cubic and over bbr. Real TCP and UDP through launcher=netns, so it needs root and /dev/net/tun. The whole
takes about 25 minutes; `--case` runs one of

tail      525 rounds at 1 % loss: p99 against zmq over cubic (of which there are few rounds: one takes five seconds) and
          over bbr, p99 over p50, time to the same loss as zmq over bbr
lossless  a round without loss
share     what one flow of ours gets beside one over cubic and one over bbr, three times
ranking   loss where the unimportant fifth of the parts never leaves in its own round, against a fifth by chance
learning  accuracy and loss at 1 % and 5 % loss against none, ten paired seeds, on links that are faster

Runs of all sides take turns. Round times are what a worker waits for its values. The lines before the table say what
share of the parts was lost and how much of the gradients' mass was applied in its own round, in the runs that gave the
figures; `reliable_lost` and `counted_twice` are counted by senders and servers apart, over all runs.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from geomx.bench import Case
from geomx.errors import ConfigError, RunFailed

LINK = ("launcher=netns", "topology.parties=2", "topology.workers=1")
SLOW = (*LINK, "network.rate_mbit=50", "network.delay_ms=25")
FAST = (*LINK, "network.rate_mbit=200", "network.delay_ms=4")
TASK = ("task=digits", "task.pixels=28", "task.model=seed", "task.epochs=100000", "task.eval_every=0", "tracking=none")
LOSSY = "network.loss=0.01"
DGT = "transport=dgt"
CUBIC, BBR = "launcher.congestion=cubic", "launcher.congestion=bbr"
WARM_UP = 1  # rounds of each run that aren't counted
LOSS_REACHED = 0.5
LEARNING_ROUNDS = 100
RUN_S = 3600


@dataclass
class Measured:
    """One side's runs, together."""

    round_s: list[float] = field(default_factory=list)
    to_loss_s: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)  # of each run: training loss as a mean of the last ten rounds
    accuracy: list[float] = field(default_factory=list)
    sent: dict[str, float] = field(default_factory=dict)  # counters of all runs
    mass: list[float] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        return float(np.percentile(self.round_s, share))


@dataclass(frozen=True)
class Side:
    words: tuple[str, ...]
    rounds: int  # of one run


def run(quick: bool) -> dict[str, Case]:
    """Raises ConfigError where there can be no namespaces."""
    return {name: case for part in ALONE.values() for name, case in part(quick).items()}


def tail(quick: bool) -> dict[str, Case]:
    many, few = (9, WARM_UP + 1) if quick else (105, 8)
    sides = {
        "dgt, 1 % loss": Side((*SLOW, DGT, LOSSY, CUBIC), many + WARM_UP),
        "zmq over cubic, 1 % loss": Side((*SLOW, LOSSY, CUBIC), few),
        "zmq over bbr, 1 % loss": Side((*SLOW, LOSSY, BBR), many + WARM_UP),
    }
    if quick:
        del sides["zmq over bbr, 1 % loss"]
    found = _race(sides, 1 if quick else 5)
    dgt, cubic = found["dgt, 1 % loss"], found["zmq over cubic, 1 % loss"]
    cases = {
        "p99_over_cubic": Case(dgt.percentile(99), cubic.percentile(99), "s"),
        "tail": Case(dgt.percentile(99), dgt.percentile(50), "s", better="more"),  # 1 is flat
        **_kept("", found.values()),
    }
    if bbr := found.get("zmq over bbr, 1 % loss"):
        cases["p99_over_bbr"] = Case(dgt.percentile(99), bbr.percentile(99), "s")
        if dgt.to_loss_s and bbr.to_loss_s:
            cases["loss_over_bbr"] = Case(float(np.mean(dgt.to_loss_s)), float(np.mean(bbr.to_loss_s)), "s")
    return cases


def lossless(quick: bool) -> dict[str, Case]:
    """Against the better of the two."""
    rounds = 9 if quick else 40
    sides = {"dgt, no loss": Side((*SLOW, DGT, CUBIC), rounds), "zmq over cubic, no loss": Side((*SLOW, CUBIC), rounds),
             "zmq over bbr, no loss": Side((*SLOW, BBR), rounds)}  # fmt: skip
    if quick:
        del sides["zmq over bbr, no loss"]
    found = _race(sides, 1 if quick else 2)
    ours, *theirs = (measured.percentile(50) for measured in found.values())
    return {"lossless": Case(ours, min(theirs), "s")}


def share(quick: bool) -> dict[str, Case]:
    from geomx_dgt import share  # brings in the core: not to list what there is

    _check()
    if quick:
        return {}
    found: list[dict[str, float]] = []
    for _ in range(3):
        slices = share.measure(50, 25, 9)
        for name in slices[0]:
            rates = ", ".join(f"{rates[name] / 1e6:.2f}" for rates in slices)
            print(f"beside each other, {name}: {rates} MB/s, {share.SLICE_S:g} s each", flush=True)
        found += slices[2:]
    ours = [rates["dgt"] for rates in found]
    return {"share": Case(float(np.mean(ours)), float(np.mean([sum(r.values()) / len(r) for r in found])), "bytes/s",
                          better="more")}  # fmt: skip


def ranking(quick: bool) -> dict[str, Case]:
    if quick:
        return {}
    held = ("launcher=local", "topology.parties=2", "topology.workers=1", DGT, "transport.k=0.8",
            "transport.withhold=true")  # fmt: skip
    sides = {"by contribution": Side(held, LEARNING_ROUNDS),
             "by chance": Side((*held, "transport.ranking=random"), LEARNING_ROUNDS)}  # fmt: skip
    ours, chance = _race(sides, 10).values()
    print(f"loss: {_paired(ours.loss, chance.loss)}", flush=True)
    return {"loss_over_random": Case(float(np.mean(ours.loss)), float(np.mean(chance.loss)), "loss")}


def learning(quick: bool) -> dict[str, Case]:
    if quick:
        return {}
    losses = {"no loss": 0, "1 % loss": 0.01, "5 % loss": 0.05}
    sides = {n: Side((*FAST, DGT, f"network.loss={loss}"), LEARNING_ROUNDS) for n, loss in losses.items()}
    found = _race(sides, 10)
    clean = found["no loss"]
    cases = {}
    for name in ("1 % loss", "5 % loss"):
        lossy, word = found[name], name.replace(" % loss", "_percent")
        print(f"{name}: accuracy {_paired(lossy.accuracy, clean.accuracy)}, loss {_paired(lossy.loss, clean.loss)}")
        cases[f"accuracy_at_{word}"] = Case(float(np.mean(lossy.accuracy)), float(np.mean(clean.accuracy)), "share",
                                            better="more")  # fmt: skip
        cases[f"loss_at_{word}"] = Case(float(np.mean(lossy.loss)), float(np.mean(clean.loss)), "loss")
    return {**cases, **_kept("learning_", found.values())}


ALONE: dict[str, Callable[[bool], dict[str, Case]]] = {
    "tail": tail, "lossless": lossless, "share": share, "ranking": ranking, "learning": learning
}  # fmt: skip


def _paired(ours: Sequence[float], theirs: Sequence[float]) -> str:
    differences = np.subtract(ours, theirs)
    error = float(np.std(differences, ddof=1) / np.sqrt(len(differences))) if len(differences) > 1 else 0.0
    return f"{np.mean(ours):.4f} against {np.mean(theirs):.4f}, difference {np.mean(differences):+.4f} +- {error:.4f}"


def _kept(prefix: str, sides: Iterable[Measured]) -> dict[str, Case]:
    """What must hold in the same runs."""
    ours = [side for side in sides if side.mass]
    return {
        f"{prefix}mass_applied": Case(min(min(side.mass) for side in ours), 0.98, "share", better="more"),
        **{f"{prefix}{name}": Case(sum(side.sent[name] for side in ours), 0.0, "parts")
           for name in ("reliable_lost", "counted_twice")},
    }  # fmt: skip


def _check() -> None:
    from geomx_dgt import share

    if why := share.missing():
        raise ConfigError(f"bench dgt: {why}")


def _race(sides: dict[str, Side], turns: int) -> dict[str, Measured]:
    """Sides take turns; a turn's seed is the same for all."""
    if any("launcher=netns" in side.words for side in sides.values()):
        _check()
    found = {name: Measured() for name in sides}
    for turn in range(turns):
        for name, side in sides.items():
            _measure(side, found[name], turn)
    for name, measured in found.items():
        print(_line(name, measured), flush=True)
    return found


def _measure(side: Side, into: Measured, turn: int) -> None:
    with tempfile.TemporaryDirectory(prefix="geomx-bench-") as directory:
        words = [*TASK, *side.words, f"task.max_rounds={side.rounds}", f"seed={turn + 1}"]
        rows, summary = _run(words, Path(directory))
    workers = sum(node["role"] == "worker" and bool(node["weights_hash"]) for node in summary["nodes"])
    into.round_s += [row["wait_s"] / workers for row in rows[WARM_UP:]]
    into.loss.append(float(np.mean([row["loss"] for row in rows[-10:]])))
    into.accuracy.append(float(summary["accuracy"]))
    if (seconds := _reached(rows)) is not None:
        into.to_loss_s.append(seconds)
    if sent := summary["transport"]:
        into.mass.append(sent["mass_applied"])
        for name, value in sent.items():
            into.sent[name] = into.sent.get(name, 0) + value


def _run(words: Sequence[str], directory: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    command = [sys.executable, "-m", "geomx.run", *words, f"hydra.run.dir={directory}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
    if done.returncode != 0:
        raise RunFailed(f"{' '.join(words)}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return rows, json.loads((directory / "summary.json").read_text())


def _reached(rows: Sequence[dict[str, Any]]) -> float | None:
    """When the training loss, as a mean of ten steps, is low enough; None: never."""
    losses = [row["loss"] for row in rows]
    for step in range(10, len(rows) + 1):
        if np.mean(losses[step - 10 : step]) <= LOSS_REACHED:
            return float(rows[step - 1]["time"])
    return None


def _line(name: str, measured: Measured) -> str:
    p50, p99 = measured.percentile(50), measured.percentile(99)
    text = f"{name}: {len(measured.round_s)} rounds, p50 {p50:.3f} s, p99 {p99:.3f} s"
    if measured.mass:
        sent = measured.sent
        text += (f", {sent['missing_parts'] / sent['parts']:.2%} of the parts lost or late, at least "
                 f"{min(measured.mass):.2%} of the mass in its own round, {sent['reliable_lost']:.0f} reliable parts "
                 f"lost, {sent['counted_twice']:.0f} counted twice")  # fmt: skip
    return text
