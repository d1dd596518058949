"""Who sent what to whom, by key and codec, and what it costs: the ledger of a run. Pure: told what nodes counted.

Each byte stands in one row, that of its sender. `direction` is up or down for what belongs to rounds (together they are
summary.json's up_bytes and down_bytes), init for initial values, control for what belongs to no tensor. Rows without a
key are messages' own headers and framing; a message that carries several keys is nobody's.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from geomx.spec import NodeSpec

SENT_FILE = "ledger.csv"
WORK_FILE = "ledger_work.csv"
SENT = ("tier", "sender", "receiver", "direction", "key", "codec", "frames", "payload_bytes", "framing_bytes", "bytes",
        "cost")  # fmt: skip
WORK = ("tier", "node", "key", "encode_up_s", "encode_down_s", "decode_up_s", "decode_down_s", "dropped_parts",
        "returned_parts")  # fmt: skip
DIRECTIONS = ("up", "down", "init", "control")
Row = dict[str, Any]


class Accounts:
    """price: money for a GB (1e9 bytes) between parties; what stays inside a party is free."""

    def __init__(self, nodes: Sequence[NodeSpec], price: float, currency: str) -> None:
        self._by_title = {n.title: n.name for n in nodes}
        self._party = {n.name: n.party for n in nodes}
        self._price, self._currency = price, currency
        self._sent: dict[str, list[Row]] = {}
        self._work: dict[str, list[Row]] = {}

    def take(self, node: str, sent: Iterable[Sequence[Any]], work: Iterable[Sequence[Any]]) -> None:
        """What `_core.Node.ledger` gives; a later one of the same node takes the place of an earlier one."""
        self._sent[node] = [self._row(node, *item) for item in sent]
        self._work[node] = [dict(zip(WORK, (item[0], node, *item[1:]), strict=True)) for item in work]

    def estimate(self, node: str, counters: Mapping[str, float]) -> None:
        """Of a node that ended without a word: its last counters, as rows of no link and no key."""
        if node in self._sent or not counters:
            return
        self._sent[node] = []
        for tier in ("wan", "lan"):
            for direction in DIRECTIONS:
                total = int(counters.get(f"{tier}.{direction}_bytes", 0))
                payload = int(counters.get(f"{tier}.{direction}_payload_bytes", 0))
                if total:
                    self._sent[node].append(self._row(node, tier, "", "", direction, "", 0, payload, total - payload))

    @property
    def sent(self) -> list[Row]:
        """Rows with the columns SENT, largest first."""
        return sorted((r for rows in self._sent.values() for r in rows), key=lambda r: -r["bytes"])

    @property
    def work(self) -> list[Row]:
        """Rows with the columns WORK: codecs' seconds and parts that were not applied, for each node and key."""
        return [r for rows in self._work.values() for r in rows if any(r[column] for column in WORK[3:])]

    def totals(self) -> dict[str, Any]:
        """As in summary.json."""
        tiers = {tier: self._tier(tier) for tier in ("wan", "lan")}
        cost = sum(r["cost"] for r in self.sent)
        return {**tiers, "cost": cost, "price_per_gb": self._price, "currency": self._currency}

    def between_parties(self) -> dict[tuple[str, str], int]:
        """(sender's party, receiver's party) -> bytes; what stays inside a party is left out."""
        found: dict[tuple[str, str], int] = {}
        for row in self.sent:
            way = self._party.get(row["sender"], ""), self._party.get(row["receiver"], "")
            if row["tier"] == "wan" and all(way) and way[0] != way[1]:
                found[way] = found.get(way, 0) + row["bytes"]
        return found

    def write(self, directory: Path) -> None:
        """Both tables, as CSV with a line of names."""
        _write(directory / SENT_FILE, SENT, self.sent)
        _write(directory / WORK_FILE, WORK, self.work)

    def _row(self, node: str, tier: str, to: str, key: str, direction: str, codec: str, frames: int, payload: int,
             framing: int) -> Row:  # fmt: skip
        total = payload + framing
        cost = total / 1e9 * self._price if tier == "wan" else 0.0
        values = (tier, node, self._by_title.get(to, to), direction, key, codec, frames, payload, framing, total, cost)
        return dict(zip(SENT, values, strict=True))

    def _tier(self, tier: str) -> dict[str, Any]:
        sent, work = [r for r in self.sent if r["tier"] == tier], [r for r in self.work if r["tier"] == tier]
        found: dict[str, Any] = {}
        for direction in DIRECTIONS:
            rows = [r for r in sent if r["direction"] == direction]
            found[direction] = {
                what: sum(r[what] for r in rows) for what in ("bytes", "payload_bytes", "framing_bytes")
            }
        by_codec: dict[str, int] = {}
        for r in sent:
            if r["codec"] and r["direction"] in ("up", "down"):
                name = f"{r['codec']} {r['direction']}"
                by_codec[name] = by_codec.get(name, 0) + r["payload_bytes"]
        return {
            **found,
            "payload_by_codec": by_codec,
            "encode_s": sum(r["encode_up_s"] + r["encode_down_s"] for r in work),
            "decode_s": sum(r["decode_up_s"] + r["decode_down_s"] for r in work),
            "dropped_parts": sum(r["dropped_parts"] for r in work),
            "returned_parts": sum(r["returned_parts"] for r in work),
        }


def read(file: Path) -> list[Row]:
    """The rows of one of the two files, numbers as numbers; empty if there is none."""
    if not file.exists():
        return []
    with file.open(newline="") as f:
        return [{k: _value(k, v) for k, v in row.items()} for row in csv.DictReader(f)]


def _value(column: str, text: str) -> Any:
    if column == "cost" or column.endswith("_s"):
        return float(text)
    return int(text) if column in ("frames", "bytes") or column.endswith(("_bytes", "_parts")) else text


def _write(file: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    with file.open("w", newline="") as f:
        writer = csv.DictWriter(f, columns)
        writer.writeheader()
        writer.writerows(rows)
