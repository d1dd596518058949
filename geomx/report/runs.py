"""Finds runs by directory or MLflow id, reads what they left, and folds those that differ only in their seed."""

import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from geomx.errors import ConfigError
from geomx.launch import accounts
from geomx.report.picture import read
from geomx.tracking.mlflow import client, default_uri, flat

MLFLOW_ID = re.compile(r"[0-9a-f]{32}")
NO_TECHNIQUE = ("tracking.", "launcher.", "hydra.", "sweep.", "timeouts.", "trace.", "ledger.", "target.")


@dataclass
class Run:
    """What one run left in its directory."""

    directory: Path
    summary: dict[str, Any]
    rows: list[dict[str, Any]]  # of metrics.jsonl
    sent: list[dict[str, Any]]  # of ledger.csv
    config: dict[str, str]  # flat: "compression.name" -> "bsc"

    @property
    def is_finished(self) -> bool:
        return bool(self.summary["status"] == "finished")

    @property
    def wan_bytes(self) -> int:
        wan = self.summary["traffic"]["wan"]
        return int(wan["up_bytes"] + wan["down_bytes"])

    def curve(self, x: str) -> list[tuple[int, float, float]]:
        """(step, x, accuracy) where accuracy was evaluated. x: "time", or "wan" for bytes so far."""
        sent = self._wan_by_row() if x == "wan" else [row["time"] for row in self.rows]
        return [
            (int(row["step"]), float(at), float(row["accuracy"]))
            for row, at in zip(self.rows, sent, strict=True)
            if row.get("accuracy") is not None
        ]

    def _wan_by_row(self) -> list[float]:
        """Nodes tell their counters once a second: between two tellings bytes are spread evenly over the rounds."""
        told = [float(row["wan_up_bytes"] + row["wan_down_bytes"]) for row in self.rows]
        knots = [i for i in range(len(told)) if i == 0 or told[i] != told[i - 1]]
        steps, values = [-1, *(k - 1 for k in knots[1:]), len(told) - 1], [0.0, *(told[k] for k in knots[1:])]
        return [float(v) for v in np.interp(range(len(told)), steps, [*values, float(self.wan_bytes)])]


@dataclass
class Group:
    """Finished runs that differ only in their seed."""

    runs: list[Run]
    label: str = ""
    options: dict[str, str] = field(default_factory=dict)

    def mean(self, values: Iterable[float | None]) -> float | None:
        known = [v for v in values if v is not None]
        return sum(known) / len(known) if known else None

    def spread(self, name: str) -> tuple[float, float, float] | None:
        """(mean, least, most) of a figure of summary.json."""
        known = [r.summary[name] for r in self.runs if r.summary.get(name) is not None]
        return (sum(known) / len(known), min(known), max(known)) if known else None

    @property
    def wan_bytes(self) -> float:
        return sum(r.wan_bytes for r in self.runs) / len(self.runs)


def find(words: Sequence[str]) -> list[Run]:
    """Runs by the directory of a run or of a sweep, or by MLflow's id of either. Raises ConfigError with a sentence."""
    directories = [d for word in words for d in _directories(word)]
    return [load(d) for d in dict.fromkeys(directories)]


def load(directory: Path) -> Run:
    """Raises ConfigError if that isn't a run's directory."""
    try:
        summary = json.loads((directory / "summary.json").read_text())
        known = isinstance(summary, dict) and {"status", "config", "traffic"} <= summary.keys()
    except (OSError, ValueError) as e:
        raise ConfigError(f"report: {directory}: summary.json can't be read: {e}") from None
    if not known:
        raise ConfigError(f"report: {directory}: its summary.json isn't that of a run")
    rows, sent = read(directory / "metrics.jsonl"), accounts.read(directory / accounts.SENT_FILE)
    return Run(directory, summary, rows, sent, flat(summary["config"]))


def fold(runs: Sequence[Run]) -> list[Group]:
    """Groups in the order of their first run, called by the options in which they differ."""
    by_options: dict[tuple[tuple[str, str], ...], Group] = {}
    for run in runs:
        options = {k: v for k, v in run.config.items() if k != "seed" and not k.startswith(NO_TECHNIQUE)}
        by_options.setdefault(tuple(sorted(options.items())), Group([], options=options)).runs.append(run)
    groups = list(by_options.values())
    differing = _differing([g.options for g in groups])
    for group in groups:
        group.label = _label({k: group.options[k] for k in differing if k in group.options}) or _directory_name(group)
    return groups


def _differing(options: Sequence[dict[str, str]]) -> list[str]:
    """Names in which groups differ; of a choice that differs its options are left out, unless they differ within it."""
    names = sorted({k for o in options for k in o if len({p.get(k) for p in options}) > 1})
    chosen = [n for n in names if n.endswith(".name")]
    found = list(chosen)
    for name in names:
        choice = next((c for c in chosen if name.startswith(c.removesuffix("name"))), None)
        if choice is None:
            found.append(name)
        elif name != choice:
            within: dict[str | None, set[str | None]] = {}
            for o in options:
                within.setdefault(o.get(choice), set()).add(o.get(name))
            if any(len(values) > 1 for values in within.values()):
                found.append(name)
    return found


def _label(options: dict[str, str]) -> str:
    return " ".join(f"{name.removesuffix('.name')}={value}" for name, value in options.items())


def _directory_name(group: Group) -> str:
    return group.runs[0].directory.name


def _directories(word: str) -> list[Path]:
    path = Path(word).expanduser()
    if path.is_dir():
        return _below(path)
    if MLFLOW_ID.fullmatch(word):
        return _of_mlflow(word)
    raise ConfigError(f"report: {word} is neither a directory nor the id of an MLflow run")


def _below(path: Path) -> list[Path]:
    if (path / "summary.json").exists():
        return [path.absolute()]
    found = sorted(f.parent.absolute() for f in path.glob("*/summary.json"))
    if not found:
        raise ConfigError(f"report: {path}: no run is there, no summary.json in it or right below it")
    return found


def _of_mlflow(run_id: str) -> list[Path]:
    store = client(default_uri())
    try:
        run = store.get_run(run_id)
    except Exception as e:
        raise ConfigError(f"report: MLflow in {default_uri()} has no run {run_id}: {str(e).splitlines()[0]}") from None
    children = store.search_runs([run.info.experiment_id], f"tags.`mlflow.parentRunId` = '{run_id}'")
    found = []
    for one in sorted(children, key=lambda r: r.info.run_name) or [run]:
        there = Path(one.data.tags.get("geomx.directory", ""))
        if not (there / "summary.json").exists():  # moved or deleted since: what was logged is as good
            there = Path(store.download_artifacts(one.info.run_id, "", tempfile.mkdtemp(prefix="geomx-report-")))
        found.append(there)
    return found
