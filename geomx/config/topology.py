"""Where nodes are: parties, workers, global servers, and who holds which shard."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from geomx.errors import ConfigError
from geomx.options import build, option

CENTRAL = "central"  # the party of the global scheduler and the global servers


@dataclass
class Party:
    """A party that is written out: `topology.parties=[{name: a, workers: 3, host: 10.0.0.1}, {name: b}]`."""

    name: str
    workers: int = option(2, "workers of this party", at_least=1)
    host: str = option("", "address that others reach this party's nodes by; empty: what topology.hosts says")
    reachable: bool = option(True, "others can connect to it; false: it only connects to others, no overlay chooses it")


@dataclass
class Topology:
    """What flat and two-tier topologies share."""

    parties: Any = option(
        2, "a number, or a list of {name, workers, host, reachable}"
    )  # OmegaConf has no unions of containers
    workers: int = option(2, "workers of a party that says nothing else", at_least=1)
    global_servers: int = option(1, "servers that hold the model, in the central party", at_least=1)
    hosts: dict[str, str] = option({}, "party -> address that others reach its nodes by; 'central' too")
    port: int = option(0, "port of the global scheduler; 0: a free one", at_least=0, at_most=65535)
    bigarray_bound: int = option(1_000_000, "a tensor with more elements is spread over all global servers", at_least=1)
    measured: str = option("", "directory of an earlier run: tensors are placed by the bytes that its ledger says they "
                               "took between parties; empty: by those that are expected")  # fmt: skip
    tiers: ClassVar[int] = 2
    placement: ClassVar[str] = "geomx.plan:place"

    def check_here(self) -> None:
        """Raises ConfigError where the earlier run can't be read."""
        if self.measured:
            measured_bytes(self.measured)


@dataclass
class Hips(Topology):
    """Two tiers: workers, their party's local server, global servers."""

    central_workers: int = option(0, "workers in the central party; the first is the master worker", at_least=0)
    observer: str = option(
        "auto",
        "a master worker that doesn't train, where there are no central workers; auto: for scripts",
        one_of=("auto", "yes", "no"),
    )


@dataclass
class Flat(Topology):
    """One tier: every worker is a member of the WAN domain."""

    tiers: ClassVar[int] = 1


def parties(topology: Topology) -> list[Party]:
    """topology.parties in its long form, in order; a mapping by name is taken too. Raises ConfigError."""
    given: Any = topology.parties
    if type(given) is int:
        given = {f"party{i}": {} for i in range(given)}
    if isinstance(given, dict):
        named = all(isinstance(party, dict | None) for party in given.values())
        given = [{"name": name, **(party or {})} for name, party in given.items()] if named else None
    if not isinstance(given, list) or not given or not all(isinstance(p, dict) for p in given):
        raise _refused(topology)
    found = [build(Party, {"workers": topology.workers, **p}, f"topology.parties.{i}") for i, p in enumerate(given)]
    if len({p.name for p in found}) != len(found):
        raise _refused(topology)
    for party in found:
        _check_name(party.name)
    _check_hosts(topology, found)
    return found


def measured_bytes(run: str) -> dict[str, float]:
    """Tensor -> bytes that it took on one way between a party and the global servers in a round, in the mean, framing
    included, by ledger.csv and summary.json of a finished run. Raises ConfigError."""
    where = f"topology.measured: {run!r} given: "
    try:
        rounds = int(json.loads((Path(run) / "summary.json").read_text())["rounds"])
        with (Path(run) / "ledger.csv").open(newline="") as f:
            rows = [
                r for r in csv.DictReader(f) if r["tier"] == "wan" and r["direction"] in ("up", "down") and r["key"]
            ]
        ways = 2 * rounds * len({r["sender"] for r in rows if r["direction"] == "up"})
        found: dict[str, float] = {}
        for row in rows:
            found[row["key"]] = found.get(row["key"], 0.0) + int(row["bytes"]) / ways
    except KeyError as e:
        raise ConfigError(f"{where}its summary.json or ledger.csv has no {e}: is it a run that has finished?") from None
    except (OSError, ValueError, TypeError) as e:
        raise ConfigError(f"{where}its summary.json or ledger.csv can't be read: {e}") from None
    except ZeroDivisionError:
        raise ConfigError(f"{where}no tensor went between parties in it") from None
    if not found:
        raise ConfigError(f"{where}no tensor went between parties in it")
    return found


def host_of(topology: Topology, party: str) -> str:
    """The address that others reach this party's nodes by; empty where the config doesn't say."""
    own = {p.name: p.host for p in parties(topology)}
    return topology.hosts.get(party) or own.get(party, "")


def _refused(topology: Topology) -> ConfigError:
    return ConfigError(
        f"topology.parties: {topology.parties!r} given, allowed is a number from 1 or a list of "
        "{name, workers, host, reachable} with different names"
    )


def _check_name(name: str) -> None:
    if name == CENTRAL or not name or not all(c.isalnum() or c in "-_" for c in name):
        raise ConfigError(
            f"topology.parties: a party is called {name!r}, allowed are letters, digits, - and _, but not {CENTRAL!r}, "
            "which is the party of the global servers"
        )


def _check_hosts(topology: Topology, found: list[Party]) -> None:
    known = [CENTRAL, *(p.name for p in found)]
    if unknown := sorted(topology.hosts.keys() - set(known)):
        raise ConfigError(f"topology.hosts.{unknown[0]}: no such party; there are: {', '.join(known)}")
