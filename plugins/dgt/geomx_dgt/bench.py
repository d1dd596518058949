"""`python -m geomx.bench dgt`: rounds of the seed's network between parties whose links lose packets, against the plain
transport over cubic and over bbr. Real TCP and UDP through launcher=netns, so it needs root and /dev/net/tun.

Runs of both sides take turns. Round times are what a worker waits for its values; `tail` is our p99 over our p50. The
lines before the table say what share of the parts was lost and how much of the gradients' mass was applied in its own
round, in the runs that gave the times.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from geomx.bench import Case
from geomx.errors import ConfigError, RunFailed

LINK = ("launcher=netns", "network.rate_mbit=50", "network.delay_ms=25", "topology.parties=2", "topology.workers=1")
TASK = ("task=digits", "task.pixels=28", "task.model=seed", "task.epochs=100000", "task.eval_every=0", "tracking=none")
LOSSY = "network.loss=0.01"
DGT = "transport=dgt"
WARM_UP = 1  # rounds of each run that aren't counted
LOSS_REACHED = 0.5
RUN_S = 3600


@dataclass
class Measured:
    """One side's runs, together."""

    round_s: list[float] = field(default_factory=list)
    to_loss_s: list[float] = field(default_factory=list)
    parts: float = 0
    missing: float = 0
    mass: list[float] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        return float(np.percentile(self.round_s, share))


@dataclass(frozen=True)
class Side:
    words: tuple[str, ...]
    rounds: int  # of one run


def run(quick: bool) -> dict[str, Case]:
    """Raises ConfigError where there can be no namespaces."""
    from geomx_dgt import share  # brings in the core: not to list what there is

    if why := share.missing():
        raise ConfigError(f"bench dgt: {why}")
    sides = _sides(quick)
    found = {name: Measured() for name in sides}
    for turn in range(1 if quick else 5):
        for name, side in sides.items():
            _measure(side, found[name], turn)
            print(_line(name, found[name]), flush=True)
    cases = _cases(found)
    if quick:
        return cases
    shares = share.measure(50, 25, 10, 70)
    print("beside each other, MB/s: " + ", ".join(f"{n} {r / 1e6:.2f}" for n, r in shares.items()), flush=True)
    fair = sum(shares.values()) / len(shares)
    return {**cases, "share": Case(shares["dgt"], fair, "bytes/s", better="more"), **_learning(10)}


def _learning(seeds: int) -> dict[str, Case]:
    """Loss and accuracy after the same rounds from the same seeds: contribution against chance, where the fifth of the
    parts that might get lost never leaves in its own round; and links that lose packets against one that doesn't."""
    rounds = "task.max_rounds=100"
    held = ("launcher=local", DGT, "transport.k=0.8", "transport.withhold=true", rounds)
    ours = [_learned([*held, f"seed={seed}"]) for seed in range(1, seeds + 1)]
    chance = [_learned([*held, "transport.ranking=random", f"seed={seed}"]) for seed in range(1, seeds + 1)]
    cases = {"loss_over_random": _mean_case(ours, chance, 0, "loss")}
    links = {loss: [_learned([*LINK, DGT, f"network.loss={loss}", rounds, f"seed={seed}"])
                    for seed in range(1, seeds + 1)] for loss in (0, 0.01, 0.05)}  # fmt: skip
    for loss, name in ((0.01, "1_percent"), (0.05, "5_percent")):
        cases[f"loss_at_{name}"] = _mean_case(links[loss], links[0], 0, "loss")
        cases[f"accuracy_at_{name}"] = _mean_case(links[loss], links[0], 1, "share", better="more")
    return cases


def _learned(words: Sequence[str]) -> tuple[float, float]:
    """(training loss as a mean of the last ten rounds, accuracy)"""
    with tempfile.TemporaryDirectory(prefix="geomx-bench-") as directory:
        rows, summary = _run([*TASK, *words], Path(directory))
    return float(np.mean([row["loss"] for row in rows[-10:]])), float(summary["accuracy"])


def _mean_case(
    ours: Sequence[tuple[float, float]],
    theirs: Sequence[tuple[float, float]],
    which: int,
    unit: str,
    better: str = "less",
) -> Case:
    return Case(float(np.mean([o[which] for o in ours])), float(np.mean([t[which] for t in theirs])), unit, better)


def _sides(quick: bool) -> dict[str, Side]:
    many, few = (9, WARM_UP + 1) if quick else (105, 105)
    cubic, bbr = "launcher.congestion=cubic", "launcher.congestion=bbr"
    sides = {
        "dgt, 1 % loss": Side((DGT, LOSSY, cubic), many),
        "zmq over cubic, 1 % loss": Side((LOSSY, cubic), few),
        "zmq over bbr, 1 % loss": Side((LOSSY, bbr), many),
        "dgt, no loss": Side((DGT, cubic), many),
        "zmq over cubic, no loss": Side((cubic,), many),
        "zmq over bbr, no loss": Side((bbr,), many),
    }
    return {name: side for name, side in sides.items() if not (quick and "bbr" in name)}


def _cases(found: dict[str, Measured]) -> dict[str, Case]:
    dgt, cubic, clean = (found[n] for n in ("dgt, 1 % loss", "zmq over cubic, 1 % loss", "dgt, no loss"))
    plain = min((m for n, m in found.items() if n.startswith("zmq") and n.endswith("no loss")),
                key=lambda m: m.percentile(50))  # fmt: skip
    cases = {
        "p99_over_cubic": Case(dgt.percentile(99), cubic.percentile(99), "s"),
        "tail": Case(dgt.percentile(99), dgt.percentile(50), "s", better="more"),  # 1 is flat
        "lossless": Case(clean.percentile(50), plain.percentile(50), "s"),
        "mass_applied": Case(min(dgt.mass), 0.98, "share", better="more"),
    }
    if bbr := found.get("zmq over bbr, 1 % loss"):
        cases["p99_over_bbr"] = Case(dgt.percentile(99), bbr.percentile(99), "s")
        if dgt.to_loss_s and bbr.to_loss_s:
            cases["loss_over_bbr"] = Case(float(np.mean(dgt.to_loss_s)), float(np.mean(bbr.to_loss_s)), "s")
    return cases


def _measure(side: Side, into: Measured, turn: int) -> None:
    with tempfile.TemporaryDirectory(prefix="geomx-bench-") as directory:
        words = [*LINK, *TASK, *side.words, f"task.max_rounds={side.rounds}", f"seed={turn + 1}"]
        rows, summary = _run(words, Path(directory))
    workers = sum(node["role"] == "worker" and bool(node["weights_hash"]) for node in summary["nodes"])
    into.round_s += [row["wait_s"] / workers for row in rows[WARM_UP:]]
    if (seconds := _reached(rows)) is not None:
        into.to_loss_s.append(seconds)
    if sent := summary["transport"]:
        into.parts += sent["parts"]
        into.missing += sent["missing_parts"]
        into.mass.append(sent["mass_applied"])


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
        text += (f", {measured.missing / measured.parts:.2%} of the parts lost or late, at least "
                 f"{min(measured.mass):.2%} of the mass in its own round")  # fmt: skip
    return text
