"""What the workers' steps and all nodes' counters add up to. Pure: told what came, answers with rows and sums."""

from typing import Any

TIERS = ("wan", "lan")
TRAFFIC = (
    "up_bytes",
    "down_bytes",
    "up_payload_bytes",
    "down_payload_bytes",
    "messages",
    "dropped_parts",
    "init_bytes",
)
BYTES = [f"{tier}_{direction}_bytes" for tier in TIERS for direction in ("up", "down")]


class Ledger:
    """A step is complete when each worker has finished it or has no more batches; rows come in the order of steps."""

    def __init__(self, workers: list[str]) -> None:
        self._at = dict.fromkeys(workers, 0)  # worker -> its last step
        self._left: set[str] = set()
        self._open: dict[int, list[dict[str, float]]] = {}
        self._next = 1
        self.counters: dict[str, dict[str, float]] = {}  # node -> its newest
        self._encoded_s = 0.0
        self.last: dict[str, float] = {}  # the newest complete row, with the newest accuracy
        self.totals = {"samples": 0.0, "compute": 0.0, "wait": 0.0}

    @property
    def workers(self) -> list[str]:
        """Those that train."""
        return list(self._at)

    def step(self, worker: str, row: dict[str, Any]) -> list[dict[str, float]]:
        """A worker has finished a step; returns the rows that this completes."""
        step = int(row["step"])
        self._at[worker] = max(self._at[worker], step)
        if step >= self._next:  # a step that was complete without this worker is not told again
            self._open.setdefault(step, []).append(row)
        self.totals["samples"] += row.get("samples", 0)
        self.totals["compute"] += row.get("compute_s", 0.0)
        self.totals["wait"] += row.get("wait_s", 0.0)
        return self._complete()

    def left(self, worker: str) -> list[dict[str, float]]:
        """A worker has no more batches."""
        self._left.add(worker)
        return self._complete()

    def count(self, node: str, counters: dict[str, float]) -> None:
        self.counters[node] = counters

    def last_step(self, worker: str | None = None) -> int:
        """Of one worker, or the newest of all."""
        return self._at.get(worker, 0) if worker else max(self._at.values(), default=0)

    def waiting(self) -> list[str]:
        """Workers that have more to do than those who are behind: they wait."""
        training = {w: s for w, s in self._at.items() if w not in self._left}
        return [w for w, s in training.items() if s > min(training.values())]

    def sum(self, counter: str) -> float:
        return sum(c.get(counter, 0.0) for c in self.counters.values())

    def traffic(self) -> dict[str, dict[str, int]]:
        """By tier, as in summary.json."""
        return {tier: {what: int(self.sum(f"{tier}.{what}")) for what in TRAFFIC} for tier in TIERS}

    def transport(self) -> dict[str, float]:
        """What became of parts that might get lost between parties, and of channels; empty where there were none.
        mass_applied: share of the gradients' magnitude that was applied in its own round. reliable_lost: reliable parts
        that weren't; counted_twice: what servers added beyond what its senders were told to be applied: both 0."""
        classed, mass = self.sum("wan.classed_parts"), self.sum("wan.sent_mass")
        if not classed:
            return {}
        own = ("datagrams.", "streams.")
        names = {name for counters in self.counters.values() for name in counters if name.startswith(own)}
        return {
            "parts": classed,
            "droppable_parts": self.sum("wan.droppable_parts"),
            "missing_parts": self.sum("wan.missing_parts"),
            "reliable_lost": self.sum("wan.lost_reliable_parts"),
            "counted_twice": self.sum("wan.added_parts") - self.sum("wan.applied_parts"),
            "mass_applied": 1 - self.sum("wan.returned_mass") / mass if mass else 1.0,
            **{name.replace(".", "_"): self.sum(name) for name in sorted(names)},
        }

    def seconds_by(self) -> dict[str, float]:
        """Summed over all nodes."""
        return {
            "compute": self.totals["compute"],
            "encode": self.sum("encode_s"),
            "decode": self.sum("decode_s"),
            "wait": self.totals["wait"],
        }

    def _complete(self) -> list[dict[str, float]]:
        training = [s for w, s in self._at.items() if w not in self._left]
        until = min(training) if training else max(self._open, default=0)
        rows = [self._row(step, self._open.pop(step)) for step in sorted(self._open) if step <= until]
        self._next = max(self._next, until + 1)
        return rows

    def _row(self, step: int, parts: list[dict[str, float]]) -> dict[str, float]:
        samples = sum(p.get("samples", 0) for p in parts)
        row: dict[str, float] = {
            "step": step,
            "time": max(p.get("time", 0.0) for p in parts),
            "loss": sum(p["loss"] * p.get("samples", 1) for p in parts) / (samples or len(parts)),
            "samples": samples,
            "compute_s": sum(p.get("compute_s", 0.0) for p in parts),
            "wait_s": sum(p.get("wait_s", 0.0) for p in parts),
            "encode_s": self._newly_encoded_s(),
        }
        for name in ("accuracy", "test_loss"):
            if evaluated := [p[name] for p in parts if p.get(name) is not None]:
                row[name] = sum(evaluated) / len(evaluated)
        row |= {name: int(self.sum(name.replace("_", ".", 1))) for name in BYTES}
        self.last = self.last | row
        return row

    def _newly_encoded_s(self) -> float:
        before, self._encoded_s = self._encoded_s, self.sum("encode_s")
        return self._encoded_s - before
