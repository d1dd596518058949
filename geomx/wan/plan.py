"""network= and the parties -> links in numbers. Pure, but for reading a trace file."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomx.config.network import Access, Network, Pair
from geomx.config.topology import CENTRAL, Topology, parties
from geomx.errors import ConfigError
from geomx.options import build

MIN_QUEUE_BYTES = 30_000.0  # twenty packets: a queue of one delay-free link must still take a burst


@dataclass(frozen=True)
class Way:
    """One way from a party to another."""

    delay_us: float
    jitter_us: float
    loss: float
    burst: float


@dataclass(frozen=True)
class Change:
    """A line of a trace."""

    at_us: int
    bytes_per_s: float
    delay_us: float
    loss: float


@dataclass(frozen=True)
class Wan:
    """Everything by party, in the order of `parties`, the central one last. Rates in bytes/s, 0: no limit."""

    parties: tuple[str, ...]
    up: tuple[float, ...]
    down: tuple[float, ...]
    paths: tuple[tuple[Way, ...], ...]  # [from][to]
    queue_bytes: tuple[float, ...]
    trace: tuple[Change, ...]
    priorities: bool
    shares: tuple[tuple[tuple[int, float], ...], ...] = ()  # of the rates from a time on: (us, share), ...

    def index(self, party: str) -> int:
        return self.parties.index(party)

    def path(self, a: str, b: str) -> Way:
        return self.paths[self.index(a)][self.index(b)]

    def rate(self, a: str, b: str) -> float:
        """What a stream from a to b gets at most; 0: no limit."""
        limits = [r for r in (self.up[self.index(a)], self.down[self.index(b)]) if r]
        return min(limits, default=0.0)

    @property
    def is_plain(self) -> bool:
        """Nothing is to be emulated."""
        paths = [p for row in self.paths for p in row]
        return not (
            any(self.up) or any(self.down) or self.trace or any(p.delay_us or p.jitter_us or p.loss for p in paths)
        )

    @property
    def is_lossy(self) -> bool:
        return any(p.loss for row in self.paths for p in row) or any(c.loss for c in self.trace)


def resolve(network: Network, topology: Topology) -> Wan:
    """Raises ConfigError for parties that don't exist and for a trace that can't be read."""
    names = (*(p.name for p in parties(topology)), CENTRAL)
    access = {name: Access() for name in names}
    for name, given in _mapping(network.access, "network.access").items():
        _known(name, names, f"network.access.{name}")
        access[name] = build(Access, _mapping(given, f"network.access.{name}"), f"network.access.{name}")
    pairs = _pairs(network, names)
    up = tuple(_bytes_per_s(_either(access[n].rate_mbit, network.rate_mbit)) for n in names)
    down = tuple(_bytes_per_s(_down_mbit(access[n], network)) for n in names)
    paths = tuple(
        tuple(_path(network, pairs.get((a, b), Pair()), access[a], access[b], a == b) for b in names) for a in names
    )
    if network.name == "trace" and not network.trace:
        raise ConfigError("network=trace: a file is required: network.trace=FILE, a line a change: seconds, Mbit/s, "
                          "one-way delay in ms, loss")  # fmt: skip
    trace = read_trace(network.trace) if network.trace else ()
    queues = tuple(_queue(network, i, up, down, paths, trace) for i in range(len(names)))
    shares = tuple(_shares(access[n].shares, f"network.access.{n}.shares") for n in names)
    if trace and any(shares):
        raise ConfigError("network.trace sets the rates of all links; use either it or the shares of single ones")
    return Wan(names, up, down, paths, queues, trace, network.priorities, shares)


def read_trace(file: str) -> tuple[Change, ...]:
    """Raises ConfigError naming file and line."""
    try:
        lines = Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"network.trace: {file!r} can't be read: {getattr(e, 'strerror', '') or e}") from None
    rows: list[Change] = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        row = _row(words)
        if row is None or (rows and row.at_us <= rows[-1].at_us):
            raise ConfigError(
                f"network.trace: {file}, line {number}: {line.strip()!r} given, wanted are seconds (rising), Mbit/s "
                "(above 0), one-way delay in ms and loss (from 0, below 1)"
            )
        rows.append(row)
    if not rows:
        raise ConfigError(f"network.trace: {file}: there is no line of seconds, Mbit/s, one-way delay in ms and loss")
    return tuple(rows)


def _row(words: list[str]) -> Change | None:
    try:
        seconds, mbit, delay_ms, loss = map(float, words)
    except ValueError:
        return None
    allowed = all(map(math.isfinite, (seconds, mbit, delay_ms))) and seconds >= 0 and mbit > 0 and delay_ms >= 0
    return Change(int(seconds * 1e6), _bytes_per_s(mbit), delay_ms * 1e3, loss) if allowed and 0 <= loss < 1 else None


def _shares(given: Any, where: str) -> tuple[tuple[int, float], ...]:
    rows: list[tuple[int, float]] = []
    for row in given if isinstance(given, list) else [given]:
        numbers = isinstance(row, list) and len(row) == 2 and all(isinstance(v, int | float) for v in row)
        last_us = rows[-1][0] if rows else -1
        if not numbers or not (last_us < row[0] * 1e6 < math.inf) or not 0 < row[1] < math.inf:
            raise ConfigError(f"{where}: {row!r} given, wanted are [seconds (rising), share of the rates (above 0)]")
        rows.append((int(row[0] * 1e6), float(row[1])))
    return tuple(rows)


def _pairs(network: Network, names: tuple[str, ...]) -> dict[tuple[str, str], Pair]:
    found: dict[tuple[str, str], Pair] = {}
    for a, row in _mapping(network.pairs, "network.pairs").items():
        _known(a, names, f"network.pairs.{a}")
        for b, given in _mapping(row, f"network.pairs.{a}").items():
            where = f"network.pairs.{a}.{b}"
            _known(b, names, where)
            if a == b:
                raise ConfigError(f"{where}: nodes of one party don't feel the network; name two parties")
            found[a, b] = build(Pair, _mapping(given, where), where)
    return {**{(b, a): pair for (a, b), pair in found.items()}, **found}


def _path(network: Network, pair: Pair, a: Access, b: Access, is_inside: bool) -> Way:
    if is_inside:
        return Way(0.0, 0.0, 0.0, 1.0)
    losses = [
        (_either(pair.loss, network.loss), _either(pair.burst, network.burst)),
        (a.loss, a.burst),
        (b.loss, b.burst),
    ]
    arrives = math.prod(1 - loss for loss, _ in losses)
    return Way(
        delay_us=1e3 * (_either(pair.delay_ms, network.delay_ms) + a.delay_ms + b.delay_ms),
        jitter_us=1e3 * (_either(pair.jitter_ms, network.jitter_ms) + a.jitter_ms + b.jitter_ms),
        loss=1 - arrives if any(loss for loss, _ in losses) else 0.0,
        burst=max((burst for loss, burst in losses if loss), default=1.0),
    )


def _queue(network: Network, i: int, up: tuple[float, ...], down: tuple[float, ...],
           paths: tuple[tuple[Way, ...], ...], trace: tuple[Change, ...]) -> float:  # fmt: skip
    """One bandwidth-delay product of the longest round trip, or what the configuration says in milliseconds."""
    delays = [paths[i][j].delay_us + paths[j][i].delay_us for j in range(len(paths)) if j != i]
    round_trip_us = max([*delays, *(2 * c.delay_us for c in trace)], default=0.0)
    seconds = network.queue_ms / 1e3 or round_trip_us / 1e6
    fastest = max([up[i], down[i], *(c.bytes_per_s for c in trace)])
    return max(MIN_QUEUE_BYTES, fastest * seconds)


def _down_mbit(access: Access, network: Network) -> float:
    alike = _either(access.rate_mbit, network.rate_mbit)
    return _either(access.down_mbit, network.down_mbit or alike)


def _bytes_per_s(mbit: float) -> float:
    return mbit * 1e6 / 8


def _either(own: float | None, otherwise: float) -> float:
    return otherwise if own is None else own


def _mapping(given: Any, where: str) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ConfigError(f"{where}: {given!r} given, allowed is a mapping")
    return {str(k): v for k, v in given.items()}


def _known(name: str, names: tuple[str, ...], where: str) -> None:
    if name not in names:
        raise ConfigError(f"{where}: no such party; there are: {', '.join(names)}")
