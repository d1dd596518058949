"""tracking=mlflow: one store, a parent for each sweep, a run for each job. Only the launcher's process writes.

The store is sqlite below GEOMX_HOME (~/.geomx) unless a URI is given, so it doesn't move with the working directory.
What must be made once (store, experiment, a sweep's parent) is made under a file lock: two programs that start on a
fresh store would both try.
"""

import fcntl
import logging
import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from geomx.api import RunInfo, Tracker
from geomx.errors import ConfigError

FLUSH_EVERY_S = 2.0  # a write takes tens of milliseconds, a round may take one
MOST_AT_ONCE = {"metrics": 1000, "params": 100}  # what MLflow takes in one call
LONGEST_VALUE = 6000
PARENT = "mlflow_parent"  # a file in a sweep's directory: store and run of the sweep


class MlflowTracker(Tracker):
    """options: geomx.config.surroundings.Mlflow. Raises ConfigError if MLflow isn't installed."""

    def __init__(self, options: Any) -> None:
        self._options = options
        self._uri = options.uri or default_uri()
        self._client = client(self._uri)
        self._run_id: str | None = None
        self._waiting: list[Any] = []
        self._written_s = time.monotonic()
        self._previous_s = 0.0

    def start(self, run: RunInfo) -> None:
        self._directory = run.directory
        with _locked():
            experiment = self._experiment()
            tags = {"mlflow.parentRunId": self._parent(experiment, run.directory.parent)} if run.in_sweep else {}
            made = self._client.create_run(experiment, run_name=run.directory.name, tags=tags)
        self._run_id = made.info.run_id
        self._client.set_tag(self._run_id, "geomx.directory", str(run.directory.absolute()))
        self._log_config(run.config)

    def round(self, row: Mapping[str, float]) -> None:
        step, at_ms = int(row["step"]), int(time.time() * 1000)
        for name, value in {**row, **self._rate(row)}.items():
            if name == "step":
                continue
            if math.isfinite(value):
                self._waiting.append(_metric(name, float(value), at_ms, step))
            else:  # stores disagree on what becomes of them; the first one is told in words
                self._client.set_tag(self._run_id, f"geomx.not_finite.{name}", f"{value} in step {step}")
        if time.monotonic() - self._written_s > FLUSH_EVERY_S:
            self._flush()

    def end(self, summary: Mapping[str, Any]) -> None:
        self._flush()
        self._log_totals(summary.get("ledger") or {})
        if summary["error"]:
            self._client.set_tag(self._run_id, "geomx.error", str(summary["error"])[:LONGEST_VALUE])
        try:
            self._log_files()
        finally:
            status = {"finished": "FINISHED"}.get(summary["status"], "FAILED")
            self._client.set_terminated(self._run_id, "KILLED" if summary["error"] == "interrupted" else status)

    @property
    def run_id(self) -> str | None:
        return self._run_id

    def _experiment(self) -> str:
        name = self._options.experiment
        if found := self._client.get_experiment_by_name(name):
            return str(found.experiment_id)
        artifacts = None if self._options.uri else (home() / "artifacts").as_uri()
        return str(self._client.create_experiment(name, artifact_location=artifacts))

    def _parent(self, experiment: str, sweep: Path) -> str:
        """Told by a file: works with every launcher of jobs, and a resumed sweep keeps its parent."""
        file = sweep / PARENT
        if not file.exists():
            made = self._client.create_run(experiment, run_name=sweep.name)
            file.write_text(f"{self._uri} {made.info.run_id}")
        return file.read_text().split()[-1]

    def _log_config(self, config: Mapping[str, Any]) -> None:
        from mlflow.entities import Param
        from omegaconf import OmegaConf

        params = [Param(name, value) for name, value in flat(config).items()]
        for piece in _pieces(params, "params"):
            self._client.log_batch(self._run_id, params=piece)
        self._client.log_text(self._run_id, OmegaConf.to_yaml(OmegaConf.create(dict(config))), "config.yaml")

    def _rate(self, row: Mapping[str, float]) -> dict[str, float]:
        took_s, self._previous_s = row["time"] - self._previous_s, row["time"]
        return {"samples_per_s": row["samples"] / took_s} if took_s > 0 else {}

    def _flush(self) -> None:
        waiting, self._waiting, self._written_s = self._waiting, [], time.monotonic()
        for piece in _pieces(waiting, "metrics"):
            self._client.log_batch(self._run_id, metrics=piece)

    def _log_totals(self, ledger: Mapping[str, Any]) -> None:
        at_ms = int(time.time() * 1000)
        totals = [_metric(f"ledger.{name}", value, at_ms, 0) for name, value in _numbers(ledger)]
        for piece in _pieces(totals, "metrics"):
            self._client.log_batch(self._run_id, metrics=piece)

    def _log_files(self) -> None:
        for name in ("summary.json", "metrics.jsonl", "ledger.csv", "ledger_work.csv", "trace.json"):
            if (self._directory / name).exists():
                self._client.log_artifact(self._run_id, str(self._directory / name))
        if (self._directory / "logs").is_dir():
            self._client.log_artifacts(self._run_id, str(self._directory / "logs"), "logs")
        self._log_picture()

    def _log_picture(self) -> None:
        from geomx.report.picture import draw

        if picture := draw(self._directory):
            self._client.log_artifact(self._run_id, str(picture))


def home() -> Path:
    """GEOMX_HOME, or ~/.geomx; made if it isn't there."""
    found = Path(os.environ.get("GEOMX_HOME", "~/.geomx")).expanduser().absolute()
    found.mkdir(parents=True, exist_ok=True)
    return found


def default_uri() -> str:
    return f"sqlite:///{home()}/mlflow.db"


def client(uri: str) -> Any:
    """Takes seconds: only who chose MLflow pays. Raises ConfigError if it isn't installed."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        import mlflow
    except ImportError as e:
        raise ConfigError(
            f"tracking=mlflow: MLflow can't be imported ({e}); install geomx[mlflow] or use tracking=none"
        ) from None
    for noisy in ("alembic", "mlflow.store.db.utils", "mlflow"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    with _locked():  # the first client of a fresh store makes its tables
        return mlflow.MlflowClient(uri)


def close_sweep(sweep: Path, status: str) -> None:
    """Ends the parent run of a sweep, if it has one."""
    if (sweep / PARENT).exists():
        uri, _, run_id = (sweep / PARENT).read_text().rpartition(" ")
        client(uri).set_terminated(run_id, status)


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested config -> parameters with names and values that MLflow takes; the artifact config.yaml has all of it."""
    found: dict[str, str] = {}
    for key, value in config.items():
        name = re.sub(r"[^\w.\- /]", "_", f"{prefix}{key}")
        if isinstance(value, Mapping) and value:
            pieces = flat(value, f"{name}.")
        else:
            text = str(value)
            pieces = {name: text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 4] + " ..."}
        for piece, text in pieces.items():
            found[_unused(piece, found)] = text
    return found


def _numbers(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """("wan.up.bytes", 12.0) for each number of a nested mapping."""
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", float(value)


def _unused(name: str, used: Mapping[str, Any]) -> str:
    """Two names may become one when they are cleaned."""
    name, number = name[:245], 1
    free = name
    while free in used:
        number += 1
        free = f"{name}_{number}"
    return free


def _metric(name: str, value: float, at_ms: int, step: int) -> Any:
    from mlflow.entities import Metric

    return Metric(name, value, at_ms, step)


def _pieces(items: list[Any], kind: str) -> Iterator[list[Any]]:
    for start in range(0, len(items), MOST_AT_ONCE[kind]):
        yield items[start : start + MOST_AT_ONCE[kind]]


@contextmanager
def _locked() -> Iterator[None]:
    """Released by the kernel if its holder dies."""
    with (home() / "mlflow.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
