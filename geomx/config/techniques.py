"""The core's own choices of compression, transport, scheduler and sync: the plainest of each kind."""

import importlib.util
import json
from dataclasses import dataclass
from typing import ClassVar

from geomx.api import BYTES_PER_ELEMENT, CodecChoice, Compression, Line, Policy, Scheduler, Transport
from geomx.errors import ConfigError
from geomx.options import option

UNLIMITED_BYTES = 64 << 20  # on their way; more than any link holds


class Identity(Policy):
    """Everything travels as it is."""

    def choose(self, name: str, length: int, dtype: str, tier: str, direction: str) -> CodecChoice:
        return CodecChoice()


@dataclass
class NoCompression(Compression):
    """compression=none: everything travels as it is."""

    def policy(self) -> Policy:
        return Identity()


@dataclass
class Zmq(Transport):
    """transport=zmq: reliable, in order, over TCP; shared memory between nodes of one host."""

    local: bool = option(True, "shared memory between nodes of one host; false: TCP for them too", scope="node")


@dataclass
class Fifo(Scheduler):
    """scheduler=fifo: parts leave in the order in which they came; from the second round on, what waits at several
    members leaves in the order in which the server ended the parts' last rounds, so that it needn't wait for the other
    member's copy. Of what a node's own pushes have waiting, those with the larger priority go first; the priority
    doesn't travel. Inside a party up to 64 MB are on their way to a peer at once."""

    part_elements: int = option(
        262_144,
        "elements of a part at most; fewer where network= says that 16 parts of them don't fit into the "
        "bandwidth-delay product; 0: tensors are not cut",
        at_least=0,
    )
    credit_kb: int = option(
        0,
        "kilobytes on their way to a peer between parties; 0: what network= needs to keep its links busy without "
        "overflowing their queues; 64 MB where that isn't known, or tensors are not cut",
        at_least=0,
    )
    ranks: ClassVar[bool] = False

    def part_length(self, line: Line, bytes_per_element: float) -> int:
        return line.part_elements(self.part_elements, bytes_per_element) if self.part_elements else 0

    def credit_bytes(self, tier: str, line: Line) -> int:
        if tier == "lan":
            return UNLIMITED_BYTES
        if self.credit_kb or not self.part_elements:
            return self.credit_kb * 1000 or UNLIMITED_BYTES
        return line.credit_bytes(line.part_elements(self.part_elements, BYTES_PER_ELEMENT)) or UNLIMITED_BYTES


@dataclass
class Optimizer:
    """What turns summed gradients into weights. Which parameters count, depends on the name (`used`)."""

    where: str = option(
        "server", "server: a pull gives weights; worker: it gives summed gradients", one_of=("server", "worker")
    )
    name: str = option("adam", "adam, sgd, dcasgd, or one that MXNet knows by name")
    learning_rate: float = option(0.003, "step size", above=0)
    momentum: float = option(0.0, "of sgd and dcasgd", at_least=0, below=1)
    wd: float = option(0.0, "weight decay", at_least=0)
    beta1: float = option(0.9, "of adam", at_least=0, below=1)
    beta2: float = option(0.999, "of adam", at_least=0, below=1)
    epsilon: float = option(1e-8, "of adam", above=0)
    lamda: float = option(0.04, "of dcasgd: how much of the delay is compensated", at_least=0)
    extra: dict[str, float] = option({}, "parameters of other optimizers by name")

    def check_here(self) -> None:
        """Raises ConfigError for a name that neither the core nor this machine's MXNet knows."""
        if self.where == "worker" or self.name.lower() in self.used or not importlib.util.find_spec("mxnet"):
            return
        from geomx import updaters

        try:
            updaters.make(json.dumps({"name": self.name, "learning_rate": self.learning_rate, **self.extra}))
        except ConfigError as e:
            raise ConfigError(f"sync.optimizer.name: {e}; without MXNet there are: {', '.join(self.used)}") from None

    used: ClassVar[dict[str, tuple[str, ...]]] = {
        "sgd": ("learning_rate", "momentum", "wd"),
        "adam": ("learning_rate", "beta1", "beta2", "epsilon", "wd"),
        "dcasgd": ("learning_rate", "momentum", "lamda", "wd"),
    }


def _for_delays() -> Optimizer:
    return Optimizer(name="dcasgd", learning_rate=0.05)


@dataclass
class Fsa:
    """sync=fsa: a round closes when all parties are in."""

    optimizer: Optimizer = option(Optimizer, "what turns summed gradients into weights")


@dataclass
class Mixed:
    """sync=mixed: parties don't wait for each other; inside a party all workers do."""

    staleness: int = option(8, "rounds that a party may be ahead of the slowest one", at_least=0)
    optimizer: Optimizer = option(_for_delays, "what turns gradients into weights; on the server")
