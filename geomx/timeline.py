"""What all nodes did in some rounds, as one file for Perfetto (ui.perfetto.dev) or chrome://tracing.

While a run goes on, each node's spans are appended to trace/<node>.txt below the run's directory, so that what was told
before a kill is there; `assemble` makes trace.json of them, at the end of a run or later:

    python -m geomx.timeline RUN

Times are CLOCK_MONOTONIC's. Nodes of one host (the same boot id, whatever their network namespace) share that clock.
For others an offset is estimated from the parts that they sent each other, as NTP does: with the smallest difference
between leaving here and arriving there, in each direction, d1 = delay + offset and d2 = delay - offset, so offset is
(d1 - d2) / 2, wrong by at most half of what the two directions' delays differ. It is found link by link from the first
global server.

Lines of a node's file (geomx/bindings/account.cc, geomx/train.py):

    host BOOT_ID            peer TIER NUMBER NAME        key NUMBER NAME        dropped COUNT
    span KIND TIER DIRECTION PEER KEY PART ROUND BEGIN_NS END_NS
    step KIND ROUND BEGIN_NS END_NS
"""

import argparse
import contextlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from geomx.cli import command
from geomx.errors import ConfigError

FOLDER, FILE = "trace", "trace.json"
LOOP, STEPS = "work", "steps"  # names of tracks; what overlaps gets more of them: "queue 2"
TRACKS = (STEPS, LOOP, "queue", "wire", "wait")
ARROWS = {  # (kind, tier, direction) in the order of a part's way
    ("queue", "lan", "up"): 0, ("merge", "lan", "up"): 1, ("queue", "wan", "up"): 2, ("merge", "wan", "up"): 3,
    ("queue", "wan", "down"): 4, ("decode", "wan", "down"): 5, ("queue", "lan", "down"): 6,
    ("decode", "lan", "down"): 7,
}  # fmt: skip


@dataclass(frozen=True)
class Span:
    """kind: encode, queue, receive, merge, open, update, decode, or compute and wait of a worker's step."""

    kind: str
    round: int
    begin_ns: int
    end_ns: int
    tier: str = ""
    direction: str = ""
    peer: str = ""  # a node's name
    key: int = -1
    part: int = 0


@dataclass
class NodeTrace:
    """One node's file."""

    name: str
    host: str = ""
    spans: list[Span] = field(default_factory=list)
    keys: dict[int, str] = field(default_factory=dict)
    dropped: int = 0


def append(directory: Path, node: str, lines: str) -> None:
    """What a node told; called by the launcher as it comes."""
    folder = directory / FOLDER
    folder.mkdir(exist_ok=True)
    with (folder / f"{node}.txt").open("a") as file:
        file.write(lines)


def assemble(directory: Path, names: dict[str, str]) -> Path | None:
    """Writes trace.json of a run's directory; None without spans. names: a node's title in sentences -> its name."""
    nodes = [parse(file, names) for file in sorted((directory / FOLDER).glob("*.txt"))]
    if not any(node.spans for node in nodes):
        return None
    aligned = align(nodes)
    out = directory / FILE
    new = out.with_suffix(".new")
    with new.open("w") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        for i, event in enumerate(events(aligned)):
            file.write(f"{',' if i else ''}{json.dumps(event)}\n")
        file.write("]}\n")
    new.replace(out)
    return out


def parse(file: Path, names: dict[str, str]) -> NodeTrace:
    """A node's file; a last line that was cut off is left out."""
    node = NodeTrace(file.stem)
    peers: dict[tuple[str, int], str] = {}
    for line in file.read_text(errors="replace").splitlines():
        kind, _, rest = line.partition(" ")
        with contextlib.suppress(ValueError, KeyError):
            if kind == "span":
                node.spans.append(_span(rest.split(" "), peers))
            elif kind == "step":
                what, number, begin, end = rest.split(" ")
                node.spans.append(Span(what, int(number), int(begin), int(end)))
            elif kind == "peer":
                tier, number, name = rest.split(" ", 2)
                peers[tier, int(number)] = names.get(name, name)
            elif kind == "key":
                number, name = rest.split(" ", 1)
                node.keys[int(number)] = name
            elif kind == "host":
                node.host = rest
            elif kind == "dropped":
                node.dropped = int(rest)
    return node


def _span(words: Sequence[str], peers: dict[tuple[str, int], str]) -> Span:
    kind, tier, direction, peer, key, part, number, begin, end = words
    named = peers.get((tier, int(peer)), "") if peer != "-1" else ""
    return Span(kind, int(number), int(begin), int(end), tier, direction, named, int(key), int(part))


# --- clocks -----------------------------------------------------------------------------------------------------------


def align(nodes: Sequence[NodeTrace]) -> list[NodeTrace]:
    """The same with one clock, that of the first global server, or of the first node where there is none."""
    offsets = clock_offsets(nodes)
    return [replace(n, spans=[_moved(s, offsets[n.name]) for s in n.spans]) if offsets[n.name] else n for n in nodes]


def clock_offsets(nodes: Sequence[NodeTrace]) -> dict[str, int]:
    """Nanoseconds that each node's clock is ahead. A host that exchanged no part with the others counts as 0 ahead."""
    root = next((n for n in nodes if n.name.startswith("global_server")), nodes[0])
    host_of = {n.name: n.host or n.name for n in nodes}
    ahead = {host_of[root.name]: 0}
    delays = _least_delays(nodes, host_of)
    while new := [(a, b) for a, b in delays if a in ahead and b not in ahead and (b, a) in delays]:
        for a, b in new:
            ahead.setdefault(b, ahead[a] + (delays[a, b] - delays[b, a]) // 2)
    return {name: ahead.get(host, 0) for name, host in host_of.items()}


def _least_delays(nodes: Sequence[NodeTrace], host_of: dict[str, str]) -> dict[tuple[str, str], int]:
    """(host, other host) -> the smallest difference between their clocks' times of leaving and arriving."""
    found: dict[tuple[str, str], int] = {}
    for sender, receiver, queued, received in _trips(nodes):
        between = host_of[sender], host_of[receiver]
        if between[0] != between[1]:
            took = received.begin_ns - queued.end_ns
            found[between] = min(took, found.get(between, took))
    return found


def _trips(nodes: Sequence[NodeTrace]) -> Iterator[tuple[str, str, Span, Span]]:
    """(sender, receiver, its queue span, the other's receive span) of each part that both ends told of."""
    known = {n.name for n in nodes}
    left = {(n.name, s.peer, *_part(s)): s for n in nodes for s in n.spans if s.kind == "queue" and s.peer in known}
    for node in nodes:
        for span in node.spans:
            if span.kind == "receive" and (queued := left.get((span.peer, node.name, *_part(span)))):
                yield span.peer, node.name, queued, span


def _part(span: Span) -> tuple[Any, ...]:
    return span.tier, span.direction, span.key, span.part, span.round


def _moved(span: Span, ahead_ns: int) -> Span:
    return replace(span, begin_ns=span.begin_ns - ahead_ns, end_ns=span.end_ns - ahead_ns)


# --- events -----------------------------------------------------------------------------------------------------------


def events(nodes: Sequence[NodeTrace]) -> Iterator[dict[str, Any]]:
    """Chrome's trace events: a process a node, slices on its tracks, arrows along each part's way."""
    zero = min(s.begin_ns for n in nodes for s in n.spans)
    placed: dict[tuple[str, Span], tuple[int, int]] = {}
    keys = {index: name for n in nodes for index, name in n.keys.items()}
    wires = defaultdict(list)
    for sender, receiver, queued, received in _trips(nodes):
        took = replace(received, kind="wire", peer=sender, begin_ns=min(queued.end_ns, received.begin_ns))
        wires[receiver].append(took)
    for pid, node in enumerate(sorted(nodes, key=_order), 1):
        title = f"{node.name} ({node.dropped} spans dropped)" if node.dropped else node.name
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": title}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
        spans = [s for s in node.spans if s.kind != "receive"] + wires[node.name]
        for tid, (track, members) in enumerate(_tracks(spans)):
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": track}}
            for span in members:
                placed[node.name, span] = pid, tid
                yield _slice(span, pid, tid, zero, keys)
    yield from _arrows(nodes, placed, zero)


def _order(node: NodeTrace) -> tuple[Any, ...]:
    """Global servers first, then party by party, its server before its workers."""
    return not node.name.startswith("global"), node.name.partition(".")[0], "worker" in node.name, node.name


def _tracks(spans: Iterable[Span]) -> Iterator[tuple[str, list[Span]]]:
    """(name, slices that don't overlap); as many tracks of a name as overlap."""
    by_track: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_track[_track(span)].append(span)
    for name in TRACKS:
        lanes: list[list[Span]] = []
        for span in sorted(by_track[name], key=lambda s: (s.begin_ns, -s.end_ns)):
            lane = next((free for free in lanes if free[-1].end_ns <= span.begin_ns), None)
            if lane is None:
                lanes.append(lane := [])
            lane.append(span)
        yield from ((name if i == 0 else f"{name} {i + 1}", lane) for i, lane in enumerate(lanes))


def _track(span: Span) -> str:
    if span.kind in ("compute", "wait"):
        return STEPS
    return {"queue": "queue", "wire": "wire", "open": "wait"}.get(span.kind, LOOP)


def _slice(span: Span, pid: int, tid: int, zero: int, keys: dict[int, str]) -> dict[str, Any]:
    args: dict[str, Any] = {"round": span.round}
    name = {"open": "wait for all"}.get(span.kind, span.kind)
    if span.tier:
        key = keys.get(span.key, f"key {span.key}")
        args |= {"key": key, "part": span.part, "tier": span.tier, "direction": span.direction}
        name = f"{name} {key}" if span.part == 0 else f"{name} {key} [{span.part}]"
    if span.peer:
        args["to" if span.kind == "queue" else "from"] = span.peer
    return {"ph": "X", "name": name, "cat": span.kind, "pid": pid, "tid": tid, "ts": (span.begin_ns - zero) / 1e3,
            "dur": (span.end_ns - span.begin_ns) / 1e3, "args": args}  # fmt: skip


def _arrows(nodes: Sequence[NodeTrace], placed: dict[tuple[str, Span], tuple[int, int]],
            zero: int) -> Iterator[dict[str, Any]]:  # fmt: skip
    """From each worker's part to its server, the global server and back."""
    found: dict[tuple[Any, ...], Span] = {}
    for node in nodes:
        for span in node.spans:
            if (span.kind, span.tier, span.direction) in ARROWS:
                found.setdefault((node.name, span.kind, span.peer, *_part(span)), span)
    above = {(k[0], *k[5:]): k[2] for k in found if k[1] == "queue" and k[3:5] == ("wan", "up")}
    number = 0
    for way in _ways(nodes, found, above):
        if len(way) < 2:
            continue
        number += 1
        for i, (name, span) in enumerate(way):
            pid, tid = placed[name, span]
            at_ns = max(span.begin_ns, span.end_ns - 1) if span.kind == "queue" else span.begin_ns
            event = {"ph": "s" if i == 0 else "f" if i == len(way) - 1 else "t", "name": "part", "cat": "way",
                     "id": number, "pid": pid, "tid": tid, "ts": (at_ns - zero) / 1e3}  # fmt: skip
            yield {**event, "bp": "e"} if i == len(way) - 1 else event


def _ways(nodes: Sequence[NodeTrace], found: dict[tuple[Any, ...], Span],
          above: dict[tuple[Any, ...], str]) -> Iterator[list[tuple[str, Span]]]:  # fmt: skip
    """For each part that a worker sent in a round: (node, its span) along the way, as far as it was told. above:
    (local server, key, part, round) -> the global server that it went to."""
    for node in nodes:
        if "worker" not in node.name and node.name != "master":
            continue
        for span in node.spans:
            if span.kind == "queue" and span.direction == "up":
                yield list(_way(node.name, span, found, above))


def _way(worker: str, sent: Span, found: dict[tuple[Any, ...], Span],
         above: dict[tuple[Any, ...], str]) -> Iterator[tuple[str, Span]]:  # fmt: skip
    def at(node: str, kind: str, peer: str, tier: str, direction: str) -> Iterator[tuple[str, Span]]:
        if span := found.get((node, kind, peer, tier, direction, sent.key, sent.part, sent.round)):
            yield node, span

    server = sent.peer
    yield worker, sent
    yield from at(server, "merge", worker, sent.tier, "up")
    if sent.tier == "lan" and (root := above.get((server, *_part(sent)[2:]))):
        yield from at(server, "queue", root, "wan", "up")
        yield from at(root, "merge", server, "wan", "up")
        yield from at(root, "queue", server, "wan", "down")
        yield from at(server, "decode", "", "wan", "down")
    yield from at(server, "queue", worker, sent.tier, "down")
    yield from at(worker, "decode", "", sent.tier, "down")


def titles(summary: dict[str, Any]) -> dict[str, str]:
    """Titles in sentences of the nodes of a summary.json -> their names."""
    from geomx.spec import title

    found = {"master worker": "master"}
    for node in summary["nodes"]:
        role = "scheduler" if node["role"] == "global_scheduler" else node["role"]
        found[title(role, node["party"], node["rank"], node["role"] == "global_scheduler")] = node["name"]
    return found


@command
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m geomx.timeline", description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run's directory")
    given = parser.parse_args(arguments)
    try:
        summary = json.loads((given.run / "summary.json").read_text())
    except (OSError, ValueError) as e:
        raise ConfigError(f"{given.run}: no summary.json of a run there: {e}") from None
    made = assemble(given.run, titles(summary))
    if made is None:
        raise ConfigError(f"{given.run}: no spans were told; run with trace.rounds=[first,last]")
    print(f"{made}: open it in ui.perfetto.dev")
    return 0


if __name__ == "__main__":
    sys.exit(main())
