"""summary.json: how a run went. Written when it begins and again when it ends, so that a killed run tells, too."""

import json
import math
from pathlib import Path
from typing import Any

from geomx.config import Config
from geomx.config.techniques import Zmq
from geomx.launch.job import Outcome
from geomx.units import size
from geomx.wan import overhead, selftest

FILE = "summary.json"


def empty(config: Any) -> dict[str, Any]:
    """Of a run of which nothing is known but its configuration."""
    traffic = dict.fromkeys(
        ("up_bytes", "down_bytes", "up_payload_bytes", "down_payload_bytes", "messages", "dropped_parts", "init_bytes"),
        0,
    )
    return {
        "status": "failed",
        "error": "did not end",
        "config": config,
        "mlflow_run_id": None,
        "nodes": [],
        "rounds": 0,
        "samples": 0,
        "seconds": 0.0,
        "accuracy": None,
        "loss": None,
        "test_loss": None,
        "target": {"accuracy": None, "reached_seconds": None, "reached_round": None},
        "traffic": {"wan": dict(traffic), "lan": dict(traffic)},
        "ledger": None,
        "network": {},
        "seconds_by": {"compute": 0.0, "encode": 0.0, "decode": 0.0, "wait": 0.0},
        "transport": {},
    }


def told_by(config: Config, outcome: Outcome) -> dict[str, Any]:
    """What a run's outcome adds to `empty`. Without workers' results, the last complete round speaks."""
    ledger = outcome.ledger
    results = [r for worker, r in outcome.results.items() if worker in ledger.workers]
    accuracy = _mean(results, "accuracy", ledger.last.get("accuracy"))
    return {
        "nodes": outcome.nodes,
        "rounds": max((int(r.get("rounds") or 0) for r in results), default=ledger.last_step()),
        "samples": int(ledger.totals["samples"]),
        "seconds": outcome.seconds,
        "accuracy": accuracy,
        "loss": _mean(results, "loss", ledger.last.get("loss")),
        "test_loss": _mean(results, "test_loss", ledger.last.get("test_loss")),
        "target": _target(config.target.accuracy, accuracy, outcome),
        "traffic": ledger.traffic(),
        "ledger": outcome.accounts.totals(),
        "network": _network(config, outcome),
        "seconds_by": ledger.seconds_by(),
        "transport": ledger.transport(),
    }


def _network(config: Config, outcome: Outcome) -> dict[str, Any]:
    """What the launcher says, and where it counts packets and all of them are TCP's, whether the ledger agrees."""
    told = outcome.network
    if "links" not in told or not isinstance(config.transport, Zmq):
        return told
    return {**told, "ledger": overhead.agreement(outcome.accounts.between_parties(), told["links"])}


def write(directory: Path, summary: dict[str, Any]) -> None:
    """Whole or not at all: a reader never sees half of it."""
    new = directory / f"{FILE}.new"
    new.write_text(json.dumps(summary, indent=1, default=str))
    new.replace(directory / FILE)


def text(summary: dict[str, Any], directory: Path) -> str:
    """For people, a figure a line."""
    if summary["status"] != "finished" and not summary["rounds"]:  # a row of noughts would hide what is said next
        return "\n".join(_row(*row) for row in [("status", summary["status"]), ("directory", str(directory))])
    rows = [("status", summary["status"]), ("rounds", str(summary["rounds"])), ("samples", f"{summary['samples']:,}")]
    rows += [(name, f"{summary[name]:.4f}") for name in ("accuracy", "loss", "test_loss") if summary[name] is not None]
    rows.append(("seconds", f"{summary['seconds']:.1f}"))
    for tier in ("wan", "lan"):
        sent = summary["traffic"][tier]
        rows.append((f"{tier} traffic", f"up {size(sent['up_bytes'])}, down {size(sent['down_bytes'])}"))
    if sent := summary["transport"]:
        applied, lost = sent["mass_applied"], sent["missing_parts"] / sent["parts"]
        said = f"{applied:.2%} of their mass in its own round, {lost:.2%} of the parts lost"
        rows.append(
            ("gradients", said if sent["droppable_parts"] else "no part was droppable: tensors were of too few")
        )
    if summary.get("ledger"):
        rows.append(("wan cost", f"{summary['ledger']['cost']:.4g} {summary['ledger']['currency']}"))
    rows += [("network", line) for line in _network_lines(summary["network"])]
    hashes = {n["weights_hash"] for n in summary["nodes"] if n["weights_hash"]}
    if hashes:
        rows.append(("weights", "the same on all workers" if len(hashes) == 1 else f"{len(hashes)} different ones"))
    if summary["mlflow_run_id"]:
        rows.append(("mlflow run", summary["mlflow_run_id"]))
    rows.append(("directory", str(directory)))
    return "\n".join(_row(*row) for row in rows)


def _row(name: str, value: str) -> str:
    return f"  {name:12} {value}"


def _network_lines(told: dict[str, Any]) -> list[str]:
    lines = [selftest.text(row) for row in told.get("self_test", [])]
    if "router_cpu_share" in told:
        lines.append(f"TCP {told['congestion']}; the router took {told['router_cpu_share']:.1%} of a core")
    return lines + ([overhead.text(told["ledger"])] if told.get("ledger") else [])


def _mean(results: list[dict[str, Any]], name: str, otherwise: float | None) -> float | None:
    known = [r[name] for r in results if r.get(name) is not None]
    value = sum(known) / len(known) if known else otherwise
    return value if value is None or math.isfinite(value) else None


def _target(goal: float | None, accuracy: float | None, outcome: Outcome) -> dict[str, Any]:
    reached = outcome.reached
    if goal is not None and reached is None and accuracy is not None and accuracy >= goal:
        reached = outcome.ledger.last  # evaluated only at the end
    return {
        "accuracy": goal,
        "reached_seconds": reached["time"] if reached and goal is not None else None,
        "reached_round": int(reached["step"]) if reached and goal is not None else None,
    }
