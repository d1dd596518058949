"""topology=yourname: tensors lie on the global servers by turns, beginning where least is held; large ones are spread
over all."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from geomx.api import Shard, Tensor, option
from geomx.config.topology import Hips


@dataclass
class Yourname(Hips):
    global_servers: int = option(2, "servers that hold the model, in the central party", at_least=1)
    placement: ClassVar[str] = "geomx_yourname:place"


def place(options: Yourname, tensors: Sequence[Tensor], held: Sequence[float]) -> list[list[Shard]]:
    """The shards of each tensor. held: bytes that each server holds so far."""
    servers = sorted(range(len(held)), key=held.__getitem__)
    turns, found = 0, []
    for tensor in tensors:
        if tensor.length > options.bigarray_bound:
            found.append(spread(tensor.length, len(servers)))
        else:
            found.append([Shard(servers[turns % len(servers)], 0, tensor.length)])
            turns += 1
    return found


def spread(length: int, servers: int) -> list[Shard]:
    """As even as can be, without empty shards."""
    bounds = [length * i // servers for i in range(servers + 1)]
    return [Shard(i, start, end - start) for i, (start, end) in enumerate(pairwise(bounds)) if end > start]
