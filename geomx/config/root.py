"""The typed root: what conf/config.yaml composes and what everything below `geomx.app` sees."""

from dataclasses import dataclass
from typing import Any

from geomx.config.network import Network
from geomx.options import option

GROUPS = ("topology", "compression", "transport", "scheduler", "sync", "network", "launcher", "framework", "task",
          "tracking")  # fmt: skip
MANY = ("scheduler",)  # groups that take several choices; each gets a branch: scheduler.p3.part_elements
DEFAULTS = {
    "topology": "hips",
    "compression": "none",
    "transport": "zmq",
    "scheduler": "fifo",
    "sync": "fsa",
    "launcher": "local",
    "framework": "mxnet",
    "task": "digits",
    "tracking": "mlflow",
}


@dataclass
class Timeouts:
    """Seconds."""

    join_s: float = option(60.0, "until the whole cluster is there", above=0)
    wait_s: float = option(600.0, "deadline of calls that wait", above=0)
    death_s: float = option(12.0, "silence after which a node counts as dead", above=0)
    slow_s: float = option(10.0, "a wait that is longer is warned about, naming who is waited for", above=0)


@dataclass
class Target:
    accuracy: float | None = option(None, "summary.json says when it was reached", above=0, at_most=1)


@dataclass
class Ledger:
    price_per_gb: float = option(0.09, "of what passes between parties; the default is a cloud's usual list price for "
                                 "traffic that leaves it", at_least=0)  # fmt: skip
    currency: str = option("USD", "what the price is in")


@dataclass
class Trace:
    rounds: list[int] = option([], "[first, last]: what nodes do in these rounds becomes trace.json, for Perfetto")
    max_spans: int = option(20_000, "of one node; what comes then is counted and left out", at_least=1)


@dataclass
class Sweep:
    resume: bool = option(False, "go on with the newest sweep of the same command; finished jobs are skipped")
    objective: str = option(
        "accuracy", "what sweepers that search are given", one_of=("accuracy", "loss", "seconds", "wan_bytes")
    )


@dataclass
class Config:
    topology: Any = "???"  # Any: the chosen plugin's own dataclass arrives here, typed
    compression: Any = "???"
    transport: Any = "???"
    scheduler: dict[str, Any] = option({}, "several at once: scheduler.<plugin>.<option>")
    sync: Any = "???"
    network: Network = option(Network, "what the links between parties are like")
    launcher: Any = "???"
    framework: Any = "???"
    task: Any = "???"
    tracking: Any = "???"
    target: Target = option(Target, "what is to be reached")
    timeouts: Timeouts = option(Timeouts, "how long things may take")
    trace: Trace = option(Trace, "a timeline of all nodes")
    ledger: Ledger = option(Ledger, "what traffic costs")
    sweep: Sweep = option(Sweep, "of runs with -m")
    on_failure: str = option("stop", "when a node dies: stop ends the run", one_of=("stop",))
    seed: int = option(1, "seed of data order and initial weights", at_least=0)
    deterministic: bool = option(False, "sums are added in one stated order: the same bits in each run")
