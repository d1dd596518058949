"""topology=multigps: the model lies on several global servers, so that no server's link carries it all. Tensors are
placed by the bytes that they take between parties."""

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
    """The largest first (Graham 1969). One with more than `bigarray_bound` elements is spread over all servers, by
    their weights; another goes whole where least is, or, where that would be more than an even share of all that is
    known by now, in pieces that raise the emptiest servers to one level."""
    weights = options.weights or [1.0] * len(held)
    _check_weights(weights, len(held))
    share = (sum(held) + sum(t.bytes for t in tensors)) / sum(weights) * SLACK
    loads = [h / w for h, w in zip(held, weights, strict=True)]  # seconds of a server, but for a factor
    found: dict[int, list[Shard]] = {}
    for i in sorted(range(len(tensors)), key=lambda i: -tensors[i].bytes):
        found[i] = _shards(tensors[i], _parts(options, tensors[i], loads, weights, share))
        for shard in found[i]:
            bytes_there = tensors[i].bytes * shard.length / max(tensors[i].length, 1)
            loads[shard.server] += bytes_there / weights[shard.server]
    return [found[i] for i in range(len(tensors))]


def _parts(
    options: MultiGps, tensor: Tensor, loads: Sequence[float], weights: Sequence[float], share: float
) -> dict[int, float]:
    """Server -> its part of the tensor; together 1."""
    least = min(range(len(loads)), key=lambda s: loads[s] + tensor.bytes / weights[s])
    if len(loads) > 1 and tensor.length > options.bigarray_bound:
        return {s: w / sum(weights) for s, w in enumerate(weights)}
    if loads[least] + tensor.bytes / weights[least] <= share or tensor.bytes < 2 * options.least_bytes:
        return {least: 1.0}
    most = min(int(tensor.bytes // options.least_bytes), tensor.length)
    parts = _levelled(tensor.bytes, loads, weights, most)
    small = options.least_bytes / tensor.bytes * 0.99
    kept = {s: part for s, part in parts.items() if part >= small} or {least: 1.0}
    return {s: part / sum(kept.values()) for s, part in kept.items()}


def _levelled(amount: float, loads: Sequence[float], weights: Sequence[float], most: int) -> dict[int, float]:
    """Parts of an amount that bring the emptiest servers, `most` at most, to one level."""
    rising = sorted(range(len(loads)), key=loads.__getitem__)[:most]
    for count in range(1, len(rising) + 1):
        filled = rising[:count]
        level = (amount + sum(loads[s] * weights[s] for s in filled)) / sum(weights[s] for s in filled)
        if count == len(rising) or level <= loads[rising[count]]:
            break
    return {s: (level - loads[s]) * weights[s] / amount for s in filled if level > loads[s]}


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
