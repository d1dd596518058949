"""Sweeps: a directory a job, refused combinations dropped, finished jobs skipped, every failure told at the end."""

import hashlib
import itertools
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from geomx import app
from geomx.errors import ConfigError, Forbidden, RunFailed
from geomx.sentences import is_unknown_option, sentence

log = logging.getLogger("geomx")
TARGET = "hydra_plugins.geomx.Grid"


class Grid(Sweeper):
    """Not a BasicSweeper: Hydra's plugin scan executes that module a second time, which breaks its super()."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.loader, self.master = hydra_context.config_loader, config
        self.jobs = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        """Raises RunFailed with a line for each job that failed."""
        points, root = grid(arguments), self._root()
        jobs = self._plan(points, root)
        todo = {d: o for d, o in jobs.items() if not (self.master.sweep.resume and _error(d) is None)}
        log.info(
            "%d jobs in %s: %d dropped, %d finished before, %d to run",
            len(points), root, len(points) - len(jobs), len(jobs) - len(todo), len(todo),
        )  # fmt: skip
        root.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.master, root / "multirun.yaml")
        try:
            self._launch(todo, root)
        finally:
            bad = {d: error for d in jobs if (error := _error(d)) is not None}
            _close_tracking(root, "FAILED" if bad else "FINISHED")
        log.info(
            "%d of %d jobs finished; one page about them: python -m geomx.report %s",
            len(jobs) - len(bad),
            len(jobs),
            root,
        )
        if bad:
            raise RunFailed("\n  ".join([f"{len(bad)} of {len(jobs)} jobs failed:", *(f"{d}: {bad[d]}" for d in bad)]))

    def _launch(self, todo: dict[Path, list[str]], root: Path) -> None:
        """Directories travel as overrides: the same whatever launcher starts the job."""
        where = "hydra.sweep.dir={}", "hydra.sweep.subdir={}"
        try:
            self.jobs.launch([[*o, *map(str.format, where, map(_quoted, (root, d.name)))] for d, o in todo.items()], 0)
        except Exception as e:  # e.g. joblib gives up on all jobs when one worker process was killed
            log.error("the launcher stopped: %s: %s", type(e).__name__, (str(e).splitlines() or [""])[0])

    def _root(self) -> Path:
        """A new directory, or with sweep.resume that of the newest sweep of the same command."""
        root = Path(self.master.hydra.sweep.dir).absolute()
        used = (root / "multirun.yaml").exists()
        if used and not self.master.sweep.resume:
            raise ConfigError(f"hydra.sweep.dir: {root} holds a sweep; sweep.resume=true goes on with it")
        if self.master.sweep.resume and not used:
            command = _command(self.master)
            same = [f.parent for f in root.parent.glob("*/multirun.yaml") if _command(OmegaConf.load(f)) == command]
            if not same:
                raise ConfigError(f"sweep.resume: no sweep of this command in {root.parent}")
            root = max(same)
        self.master.hydra.sweep.dir = str(root)
        return root

    def _plan(self, points: list[list[str]], root: Path) -> dict[Path, list[str]]:
        """Compose and check all before the first starts. What can't go together is dropped; a mistake refuses all."""
        jobs, dropped = {}, Counter[str]()
        swept = [len(set(column)) > 1 for column in zip(*points, strict=True)]
        for n, overrides in enumerate(points):
            try:
                cfg = self.loader.load_sweep_config(self.master, overrides)
                with open_dict(cfg):
                    del cfg["hydra"]
                app.typed(cfg)
            except (Forbidden, ConfigCompositionException) as e:
                if not isinstance(e, Forbidden) and not is_unknown_option(e):
                    raise
                dropped[sentence(e)] += 1
            else:
                jobs[root / _name(n, itertools.compress(overrides, swept), cfg)] = overrides
        if not jobs:
            raise ConfigError(f"no job of this sweep can run: {next(iter(dropped))}")
        for reason, count in dropped.items():
            log.warning("dropped %d jobs: %s", count, reason)
        return jobs


def install() -> None:
    """Before hydra.main."""
    ConfigStore.instance().store("geomx", {"_target_": TARGET}, "hydra/sweeper", provider="geomx")
    # Hydra starts only plugins named hydra_plugins.*; an alias spares us that second top-level package
    Plugins.instance().class_name_to_class[TARGET] = Grid


def grid(arguments: list[str]) -> list[list[str]]:
    """All combinations of the swept values; each point has the same names in the same order."""
    values: dict[str, list[str]] = {}
    for o in OverridesParser.create().parse_overrides(arguments):
        if o.is_sweep_override() and not o.is_discrete_sweep():
            raise ConfigError(f"{o.input_line}: a grid needs a list of values")
        each = o.sweep_string_iterator() if o.is_sweep_override() else [o.get_value_element_as_str()]
        values[o.get_key_element()] = [f"{o.get_key_element()}={v}" for v in each]
    return [list(point) for point in itertools.product(*values.values())]


def _error(job: Path) -> str | None:
    """None once finished. Read from disk: it serves resuming, every launcher, and jobs that were killed."""
    file = job / "summary.json"
    summary = json.loads(file.read_text()) if file.exists() else {"status": "failed", "error": "left no summary"}
    return None if summary["status"] == "finished" else str(summary["error"])


def _close_tracking(root: Path, status: str) -> None:
    from geomx.tracking.mlflow import PARENT, close_sweep

    if (root / PARENT).exists():
        close_sweep(root, status)


def _command(cfg: Any) -> list[str]:
    return [o for o in cfg.hydra.overrides.task if not o.startswith("sweep.resume")]


def _name(n: int, differs: Iterable[str], cfg: DictConfig) -> str:
    """Number, what differs, hash of the whole config: readable, unique, the same when resumed, below 255 bytes."""
    whole = OmegaConf.to_yaml(OmegaConf.masked_copy(cfg, [str(k) for k in cfg if k != "sweep"]), sort_keys=True)
    readable = re.sub(r"[^\w.=,+-]", "_", ",".join(differs))[:80]
    return f"{n:03d}-{readable}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def _quoted(value: object) -> str:
    return "'" + str(value).replace("'", "\\'") + "'"
