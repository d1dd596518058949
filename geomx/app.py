"""One job: composed config -> typed config -> run -> summary.json.

A module of its own and not run.py, so that worker processes of a parallel launcher of jobs import it by name. `typed`
is the only door from Hydra's DictConfig to what the rest of geomx sees.
"""

import dataclasses
import logging
import math
from pathlib import Path
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from geomx import plugins, summary
from geomx.api import RunInfo
from geomx.config import MANY, Config, check_here, judge
from geomx.errors import ConfigError, RunFailed
from geomx.launch.job import Job, Outcome
from geomx.launch.progress import display
from geomx.options import plain
from geomx.sentences import sentence
from geomx.tracking import observers

log = logging.getLogger("geomx")
traceback_log = logging.getLogger("geomx.traceback")  # conf/config.yaml sends it to the log file alone
failure: list[Exception] = []  # of a single run, for main()


def typed(cfg: DictConfig) -> Config:
    """Whatever can be refused is refused here: ConfigError, or what `geomx.sentences` can put into words."""
    for group in MANY:
        for name, options in cfg[group].items():  # an experiment file may set options of a plugin that the command
            if not dataclasses.is_dataclass(OmegaConf.get_type(options)):  # line deselects: that must not select it
                raise ConfigError(f"{group}.{name}: {name} is not chosen, but an option of it is set; choose it too")
    if missing := OmegaConf.missing_keys(cfg):
        raise ConfigError(f"{', '.join(sorted(missing))}: a value is required")
    config = cast(Config, OmegaConf.to_object(cfg))
    judge(config)
    return config


def job(cfg: DictConfig) -> float | None:
    """What Hydra calls; returns the objective, for sweepers that search."""
    out, single = Path(HydraConfig.get().runtime.output_dir), HydraConfig.get().mode == RunMode.RUN
    told = summary.empty(OmegaConf.to_container(cfg))
    summary.write(out, told)  # at once: a killed job must not leave an older one's
    try:
        config = typed(cfg)
        told["config"] = plain(config)
        execute(config, out, told, in_sweep=not single)
        return objective(config, told, single)
    except Exception as e:
        told |= {"error": sentence(e), "status": "refused" if isinstance(e, ConfigError) else "failed"}
        traceback_log.exception(told["error"])
        if not single:  # a stranger's exception may not survive pickling
            raise RunFailed(told["error"]) from None
        failure.append(e)  # raised, Hydra would print a line of its own before ours
        return None
    finally:  # also after Ctrl-C, which Hydra lets through
        summary.write(out, told)


def execute(config: Config, out: Path, told: dict[str, Any], in_sweep: bool = False) -> None:
    """Runs one config in a directory and fills `told`, a summary. Raises RunFailed or ConfigError; whatever happens,
    no process is left and the trackers know how it went."""
    check_here(config)
    launcher = plugins.target(config.launcher)(config.launcher)
    launcher.configure(config)
    watching = observers(config)
    watching.start(RunInfo(directory=out, config=told["config"], in_sweep=in_sweep))
    told["mlflow_run_id"] = watching.run_id
    run = Job(config, launcher, out, display(config.launcher.display), watching.round)
    try:
        run.run()
        told |= {"status": "finished", "error": None}
        _compare_weights(config, run.outcome)
    except KeyboardInterrupt:
        told["error"] = "interrupted"
        raise
    except Exception as e:
        told["error"] = sentence(e)
        raise
    finally:
        told |= summary.told_by(config, run.outcome)
        summary.write(out, told)
        run.outcome.accounts.write(out)
        watching.end(told)
        log.info("%s", summary.text(told, out))


def objective(config: Config, told: dict[str, Any], single: bool) -> float | None:
    """Raises RunFailed in a sweep for what is no number: a search must not take a diverged run for a good one."""
    sent = told["traffic"]["wan"]
    value = {**told, "wan_bytes": sent["up_bytes"] + sent["down_bytes"]}[config.sweep.objective]
    if value is None or not math.isfinite(value):
        if single or config.sweep.objective == "accuracy":
            return None
        raise RunFailed(f"{config.sweep.objective} is not a number after {told['rounds']} rounds")
    return float(value)


def _compare_weights(config: Config, outcome: Outcome) -> None:
    by_hash: dict[str, list[str]] = {}
    for name, result in outcome.results.items():
        if found := result.get("weights_hash"):  # neither observers nor scripts tell
            by_hash.setdefault(found, []).append(name)
    if len(by_hash) > 1 and getattr(config.sync, "name", "") == "fsa":
        log.warning(
            "workers ended with different weights: %s", "; ".join(", ".join(names) for names in by_hash.values())
        )
