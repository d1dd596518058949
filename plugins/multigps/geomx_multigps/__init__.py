"""topology=multigps: the model lies on several global servers, so that no server's link carries it all. Tensors are
placed by the bytes that they take between parties."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from geomx.api import ConfigError, Shard, Tensor, option
from geomx.config.topology import Hips

SLACK = 1.01  # above the even load: what it costs to leave a tensor whole


@dataclass
class MultiGps(Hips):
    global_servers: int = option(2, "servers that hold the model, in the central party", at_least=1, at_most=16)
    least_bytes: int = option(256, "of a piece between parties, about: no tensor is cut into smaller ones", at_least=4)
    weights: list[float] = option([], "shares of unequal servers, by their ranks; empty: equal ones")
    placement: ClassVar[str] = "geomx_multigps:place"

    def __post_init__(self) -> None:
        _check_weights(self.weights, self.global_servers)


def place(options: MultiGps, tensors: Sequence[Tensor], held: Sequence[float]) -> list[list[Shard]]:
    """One with more than `bigarray_bound` elements is spread over all servers, by their weights. Of the others the
    largest come first (Graham 1969), each whole where least is. Those that would be more than an even share of all that
    is known by now come last, in pieces that raise the emptiest servers to one level: so they even out the rest."""
    weights = options.weights or [1.0] * len(held)
    _check_weights(weights, len(held))
    loads = [h / w for h, w in zip(held, weights, strict=True)]  # seconds of a server, but for a factor
    share = (sum(held) + sum(t.bytes for t in tensors)) / sum(weights) * SLACK
    found: dict[int, list[Shard]] = {}

    def put(i: int, parts: dict[int, float]) -> None:
        found[i] = _shards(tensors[i], parts)
        for shard in found[i]:
            loads[shard.server] += tensors[i].bytes * shard.length / max(tensors[i].length, 1) / weights[shard.server]

    for i, tensor in enumerate(tensors):
        if len(held) > 1 and tensor.length > options.bigarray_bound:
            put(i, {s: w / sum(weights) for s, w in enumerate(weights)})
    too_large = []
    for i in sorted(range(len(tensors)), key=lambda i: -tensors[i].bytes):
        if i in found:
            continue
        least = min(range(len(loads)), key=lambda s: loads[s] + tensors[i].bytes / weights[s])
        fits = loads[least] + tensors[i].bytes / weights[least] <= share
        if fits or tensors[i].bytes < 2 * options.least_bytes:
            put(i, {least: 1.0})
        else:
            too_large.append(i)
    for i in reversed(too_large):
        most = min(int(tensors[i].bytes // options.least_bytes), tensors[i].length)
        put(i, _levelled(tensors[i].bytes, loads, weights, most, options.least_bytes))
    return [found[i] for i in range(len(tensors))]


def _levelled(
    amount: float, loads: Sequence[float], weights: Sequence[float], most: int, least: float
) -> dict[int, float]:
    """Parts of an amount that bring the emptiest servers, `most` at most, to one level: as many servers as give the
    lowest one, of those for which no part is less than `least`."""
    rising = sorted(range(len(loads)), key=loads.__getitem__)[:most]
    best, found = math.inf, {rising[0]: 1.0}
    for count in range(1, len(rising) + 1):
        filled = rising[:count]
        level = (amount + sum(loads[s] * weights[s] for s in filled)) / sum(weights[s] for s in filled)
        parts = {s: (level - loads[s]) * weights[s] for s in filled}
        if level < best and (count == 1 or min(parts.values()) >= least * 0.99):
            best, found = level, {s: part / amount for s, part in parts.items()}
    return found


def _shards(tensor: Tensor, parts: dict[int, float]) -> list[Shard]:
    found, at, upto = [], 0, 0.0
    for server in sorted(parts):
        upto += parts[server]
        end = tensor.length if server == max(parts) else min(tensor.length, round(upto * tensor.length))
        if end > at or (tensor.length == 0 and not found):
            found.append(Shard(server, at, end - at))
        at = max(at, end)
    return found


def _check_weights(weights: Sequence[float], servers: int) -> None:
    if weights and (len(weights) != servers or not all(w > 0 for w in weights)):
        raise ConfigError(
            f"topology.weights: {list(weights)} given, allowed is one number above 0 for each of the {servers} global "
            "servers, or nothing"
        )
