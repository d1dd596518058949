"""`python -m geomx.plan -m ...`: a sweep's jobs before anything starts: what is dropped and why, what the others send.

Bytes: every tensor of the model is encoded once, by the codec that the policy chooses for it in each tier and
direction, from random values; a round sends that once for each worker (LAN) and each party (WAN), up and down, and
FRAME bytes for each part. What isn't predicted: codecs whose size depends on what the values are, and parts that a
lossy transport drops.

Time of a round: a batch's gradients, measured here and shared out over this machine's cores; the codecs' time, measured
while encoding; the bytes, with TCP/IP's, through the slowest access link in each direction; and one round trip. A part
comes down as soon as all have sent it, so of the shorter direction only the last part is waited for; no part is longer
than `scheduler`'s, and in a tensor that isn't cut it is the tensor. Over links that lose packets a stream of TCP is as
fast as its congestion control lets it be in the long run (geomx.wan.tcp). Starting, evaluating, the nodes' own work,
TCP's slow start, timeouts and queues are left out: an estimate, not a promise.
"""

import argparse
import itertools
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from geomx import _core, plugins
from geomx.cli import command
from geomx.codecs import codec_of
from geomx.config import CENTRAL, Config, parties
from geomx.errors import ConfigError, Forbidden
from geomx.plan import Planner, part_length
from geomx.units import size

if TYPE_CHECKING:
    from geomx.wan.plan import Wan

FRAME = 14  # bytes of a part's header, and its share of its message's
TIERS, DIRECTIONS = ("wan", "lan"), ("up", "down")
Tensors = list[tuple[str, int]]  # name, elements


@dataclass
class Prediction:
    """Of one job. bytes: (tier, direction) -> bytes of the whole run, initial values apart, as in summary.json."""

    rounds: int
    bytes: dict[tuple[str, str], float]
    round_s: float

    @property
    def seconds(self) -> float:
        return self.rounds * self.round_s

    @property
    def wan_bytes(self) -> float:
        return self.bytes["wan", "up"] + self.bytes["wan", "down"]


def predict(config: Config) -> Prediction:
    """Raises ConfigError for what can't be predicted: a script has no shapes that are known."""
    tensors, rounds, compute_s = _work(config)
    number = {"wan": len(parties(config.topology)), "lan": _num_workers(config)}
    if config.topology.tiers == 1:
        number = {"wan": number["lan"], "lan": 0}
    elif central := getattr(config.topology, "central_workers", 0):
        number["lan"] += central
    found, codec_s, last = {}, 0.0, 0.0
    for tier in TIERS:
        for direction in DIRECTIONS:
            once = _encoded(config, tensors, tier, direction) if number[tier] else Encoded()
            found[tier, direction] = once.bytes * number[tier] * rounds
            codec_s += once.seconds
            last = max(last, once.largest / once.bytes) if tier == "wan" else last
    wire_s = _wire_s(config, found["wan", "up"] / rounds / number["wan"], found["wan", "down"] / rounds / number["wan"],
                     last)  # fmt: skip
    return Prediction(rounds, found, compute_s + codec_s + wire_s)


def _work(config: Config) -> tuple[Tensors, int, float]:
    """(tensors, rounds, seconds to compute a batch's gradients while all workers of this machine do)"""
    if hasattr(config.task, "script"):
        raise ConfigError("plan: task=script: what a script sends is known only to itself")
    task = plugins.target(config.task)(config.task)
    model = plugins.target(config.framework)(config.framework).model(task, config.seed, None)
    world = _num_workers(config) + getattr(config.topology, "central_workers", 0)
    batches = task.batches(0, world, config.seed)
    first = next(batches)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        model.backward(first.x, first.y, 1.0)
        model.loss()
        seconds.append(time.perf_counter() - began)
    crowd = max(1.0, world / (os.cpu_count() or 1)) if task.compute_s == 0 else 1.0
    tensors = [(name, int(np.prod(w.shape))) for name, w in zip(model.names, model.weights, strict=True)]
    return tensors, 1 + sum(1 for _ in batches), min(seconds) * crowd


def _num_workers(config: Config) -> int:
    return sum(p.workers for p in parties(config.topology))


@dataclass
class Encoded:
    """What one node sends another in a round: all bytes, those of the largest part, and seconds to encode them."""

    bytes: float = 0.0
    largest: float = 0.0
    seconds: float = 0.0


def _encoded(config: Config, tensors: Tensors, tier: str, direction: str) -> Encoded:
    policy, rng, found = config.compression.policy(), np.random.default_rng(1), Encoded()
    made: dict[Any, _core.Codec] = {}
    planner = Planner(config)
    planner.announce([(name, length, "float32") for name, length in tensors])
    for slot, (name, length) in enumerate(tensors):
        choice = policy.choose(name, length, "float32", tier, direction)
        key = choice.name, tuple(sorted(choice.params.items()))
        if key not in made:
            made[key] = _codec(config, choice, direction)
        codec, values = made[key], rng.standard_normal(length, np.float32)
        for start, end in _shards(config, planner, name, length, tier):
            began = time.perf_counter()
            cut = part_length(config, name, length) or max(1, end - start)
            parts = codec.encode_parts(values[start:end], cut, slot=slot, direction=direction)
            found.seconds += time.perf_counter() - began
            found.bytes += sum(len(p) for p in parts) + FRAME * len(parts)
            found.largest = max(found.largest, *(len(p) + FRAME for p in parts))
    return found


def _codec(config: Config, choice: Any, direction: str) -> _core.Codec:
    """As the nodes choose it: on the way down it must carry what the servers answer with."""
    if direction == "up" or config.sync.optimizer.where == "worker":
        return codec_of(config.compression, choice)
    for content in ("parameters", "deltas"):
        codec = codec_of(config.compression, choice, content)
        if codec.carries(content.removesuffix("s")):
            return codec
    return _core.Codec("identity")


def _shards(config: Config, planner: Planner, name: str, length: int, tier: str) -> list[tuple[int, int]]:
    """Begin and end of each server's share of a tensor."""
    servers = config.topology.global_servers if tier == "wan" else 1
    if servers == 1:
        return [(0, length)]
    return [(s.offset, s.offset + s.length) for s in planner.shards(name, length, servers)]


def _wire_s(config: Config, up: float, down: float, last: float = 1.0) -> float:
    """Seconds of a round on the WAN. up, down: bytes of one member of the WAN in a round. last: the share of them that
    must be up before the rest of the way down can be over, 1: all."""
    from geomx.wan.overhead import on_the_wire
    from geomx.wan.plan import resolve

    wan = resolve(config.network, config.topology)
    flat = config.topology.tiers == 1
    load = {p.name: p.workers if flat else 1 for p in parties(config.topology)}
    central, everybody = len(wan.parties) - 1, sum(load.values())

    def takes(own: Sequence[float], servers: float, amount: float) -> float:
        each = [amount * load[p] / r for p, r in zip(wan.parties, own, strict=True) if r and p in load]
        return max([*each, amount * everybody / servers if servers else 0.0], default=0.0)

    trip_us = max((wan.paths[i][central].delay_us + wan.paths[central][i].delay_us for i in range(central)), default=0)
    ways = [
        max(takes(wan.up, wan.down[central], on_the_wire(up, down)), _lossy_s(config, wan, up, is_down=False)),
        max(takes(wan.down, wan.up[central], on_the_wire(down, up)), _lossy_s(config, wan, down, is_down=True)),
    ]
    return max(ways) + last * min(ways) + trip_us / 1e6


def _lossy_s(config: Config, wan: "Wan", amount: float, is_down: bool) -> float:
    """Seconds of the party whose path is worst, for `amount` bytes over one stream to each server, where losses of
    packets bound a stream. 0: they don't, or it isn't TCP's."""
    from geomx.wan.tcp import default_congestion, stream_rate

    if getattr(config.transport, "datagrams", False) or not wan.is_lossy:
        return 0.0
    congestion = getattr(config.launcher, "congestion", "") or default_congestion()
    slowest = 0.0
    for party in wan.parties[:-1]:
        there, back = wan.path(party, CENTRAL), wan.path(CENTRAL, party)
        lossy = back if is_down else there
        trip_s = (there.delay_us + there.jitter_us + back.delay_us + back.jitter_us) / 1e6
        if rate := stream_rate(congestion, lossy.loss, lossy.burst, trip_s):
            slowest = max(slowest, amount / config.topology.global_servers / rate)
    return slowest


# --- the command ------------------------------------------------------------------------------------------------------


@command
def main(arguments: Sequence[str] | None = None) -> int:
    """0; 2 where no job can run or a word is a mistake."""
    parser = argparse.ArgumentParser(prog="python -m geomx.plan", description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--multirun", action="store_true", help="a job for each combination of the values")
    parser.add_argument("overrides", nargs="*", help="as for python -m geomx.run")
    given = parser.parse_intermixed_args(arguments)
    from geomx import run
    from geomx.sentences import sentence

    try:
        run.install()
        rows, dropped = _jobs(given.overrides, given.multirun)
    except Exception as e:
        raise ConfigError(sentence(e)) from e
    for label, reason in dropped:
        print(f"dropped {label}: {reason}")
    print(_table(rows))
    print("Not counted: starting, evaluating, what else this machine does; TCP's slow start, timeouts and queues.")
    return 0 if rows else 2


def _jobs(words: list[str], many: bool) -> tuple[list[tuple[str, Prediction]], list[tuple[str, str]]]:
    """(what differs, prediction) of each job that can run, and (what differs, why not) of the others."""
    from hydra import compose, initialize_config_dir
    from hydra.errors import ConfigCompositionException

    from geomx import app
    from geomx.sentences import is_unknown_option, sentence
    from geomx.sweep import grid

    points = grid(words) if many else [words]
    swept = [len(set(column)) > 1 for column in zip(*points, strict=True)]
    rows, dropped = [], []
    with initialize_config_dir(str(plugins.CONF), version_base="1.3"):
        for overrides in points:
            label = " ".join(itertools.compress(overrides, swept)) or "the job"
            try:
                rows.append((label, predict(app.typed(compose("config", overrides)))))
            except (Forbidden, ConfigCompositionException) as e:  # as a sweep does
                if not many or (not isinstance(e, Forbidden) and not is_unknown_option(e)):
                    raise
                dropped.append((label, sentence(e)))
    return rows, dropped


def _table(rows: Sequence[tuple[str, Prediction]]) -> str:
    cells = [("job", "rounds", "WAN up", "WAN down", "LAN", "s a round", "time")]
    for label, p in rows:
        lan = p.bytes["lan", "up"] + p.bytes["lan", "down"]
        cells.append((label, f"{p.rounds:,}", size(p.bytes["wan", "up"]), size(p.bytes["wan", "down"]), size(lan),
                      f"{p.round_s:.3g}", _duration(p.seconds)))  # fmt: skip
    if len(rows) > 1:
        total = sum(p.seconds for _, p in rows)
        cells.append(
            ("all, one after the other", "", "", size(sum(p.wan_bytes for _, p in rows)), "", "", _duration(total))
        )
    wide = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = ["  ".join(w.ljust(n) if i == 0 else w.rjust(n) for i, (w, n) in enumerate(zip(row, wide, strict=True)))
             for row in cells]  # fmt: skip
    return "\n".join(line.rstrip() for line in lines)


def _duration(seconds: float) -> str:
    """75 -> '1 min 15 s'"""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = math.floor(seconds / 60)
    return f"{minutes} min {seconds % 60:.0f} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
