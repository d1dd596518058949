"""How a run is started, watched and recorded."""

from dataclasses import dataclass
from typing import ClassVar

from geomx.options import option


@dataclass
class Local:
    """launcher=local: every node is a process of this machine, unless exec_prefix says otherwise."""

    exec_prefix: dict[str, list[str]] = option({}, "party -> words before its nodes' commands; 'central' too")
    threads: int = option(0, "threads of each worker's framework; 0: this machine's cores / workers", at_least=0)
    stop_s: float = option(5.0, "after a failure or Ctrl-C, until nodes that still run are killed", above=0)
    control_host: str = option("", "address that nodes reach the launcher by; empty: a socket file, same machine only")
    display: str = option(
        "auto", "progress: live, plain lines, or as the terminal allows", one_of=("auto", "live", "plain")
    )
    engine: ClassVar[str] = "shaper"  # what makes network=
    target: ClassVar[str] = "geomx.launchers.local:LocalLauncher"


@dataclass
class Netns(Local):
    """launcher=netns: a network namespace for each party on this machine; needs root and /dev/net/tun."""

    congestion: str = option("", "of TCP between parties: cubic, bbr, reno, as the kernel has; empty: its default")
    engine: ClassVar[str] = "netns"
    target: ClassVar[str] = "geomx.launchers.netns:NetnsLauncher"


@dataclass
class Mlflow:
    """tracking=mlflow: configuration, figures and files of each run, as an MLflow run."""

    uri: str | None = option(None, "null: sqlite below GEOMX_HOME (~/.geomx), wherever the run was started")
    experiment: str = option("geomx", "name of the MLflow experiment")
    target: ClassVar[str] = "geomx.tracking.mlflow:MlflowTracker"


@dataclass
class NoTracking:
    """tracking=none: metrics.jsonl and summary.json are written anyway."""

    target: ClassVar[str] = ""
