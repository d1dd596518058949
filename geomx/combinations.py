"""Which techniques go together: every topology, compression, transport, scheduler and place of the optimizer.

`python -m geomx.combinations` prints the table of the documentation. It is made from what plugins declare (`forbids`,
`needs`, `fills`), as a run judges them; a test trains with each.
"""

import dataclasses
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from geomx import plugins
from geomx.cli import command, takes_no_words
from geomx.config import judge, load
from geomx.config.root import DEFAULTS
from geomx.errors import Forbidden

PLACES = ("worker", "server")
_OTHERWISE: dict[str, dict[str, Any]] = {
    "sync=mixed": {"sync": {"name": "mixed", "optimizer": {"where": "server"}}},
    "deterministic=true": {"deterministic": True},
}


@dataclass(frozen=True)
class Combination:
    """One choice of each; `optimizer` is where it is, "worker" or "server"."""

    topology: str
    compression: str
    transport: str
    scheduler: tuple[str, ...]
    optimizer: str

    def __str__(self) -> str:
        return "-".join((self.topology, self.compression, self.transport, "+".join(self.scheduler), self.optimizer))

    def groups(self) -> dict[str, Any]:
        """The configuration as plain data, for `geomx.config.load`."""
        return {
            "topology": {"name": self.topology},
            "compression": {"name": self.compression},
            "transport": {"name": self.transport},
            "scheduler": {name: {} for name in self.scheduler},
            "sync": {"name": "fsa", "optimizer": {"where": self.optimizer}},
        }

    def refusal(self) -> str:
        """The sentence with which it is refused before a run, or "". Raises ConfigError if a plugin is missing."""
        return _judged(self.groups())


def of_techniques() -> Iterator[Combination]:
    """All of what is installed."""
    axes = (_names("topology"), _names("compression"), _names("transport"), _schedulers(), PLACES)
    for chosen in itertools.product(*axes):
        yield Combination(*chosen)


def beside(**changed: Any) -> Iterator[tuple[str, str]]:
    """(technique, refusal) of each technique alone with something else changed: beside(deterministic=True)."""
    for choice, base in _alone():
        groups = base.groups()
        for group, value in changed.items():
            groups[group] = groups[group] | value if isinstance(value, dict) else value
        yield choice, _judged(groups)


def page() -> str:
    """Markdown."""
    compressions = _names("compression")
    lines = [_HEAD]
    lines += ["| topology | optimizer | transport | scheduler | " + " | ".join(compressions) + " |",
              "|---|---|---|---|" + "---|" * len(compressions)]  # fmt: skip
    reasons: list[str] = []
    refusals = {c: c.refusal() for c in of_techniques()}
    for topology, place, transport, scheduler in itertools.product(
        _names("topology"), PLACES, _names("transport"), _schedulers()
    ):
        cells = [_cell(refusals[Combination(topology, c, transport, scheduler, place)], reasons) for c in compressions]
        lines.append(f"| {topology} | {place} | {transport} | {','.join(scheduler)} | {' | '.join(cells)} |")
    lines += ["", f"{len(refusals)} combinations, {sum(map(bool, refusals.values()))} of them refused.", "", _BESIDE]
    found = {title: dict(beside(**changed)) for title, changed in _OTHERWISE.items()}
    lines += ["| technique | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]
    for technique, _ in _alone():
        lines.append(f"| {technique} | " + " | ".join(_cell(f[technique], reasons) for f in found.values()) + " |")
    lines += ["", *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1))]
    return "\n".join(lines) + "\n"


_HEAD = """# What goes with what

Written by `python -m geomx.combinations`, from what the plugins declare; a test keeps both equal. Each "yes" is trained
on real data by `tests/cluster/test_combinations.py`: it reaches the accuracy that the task reaches without techniques,
and all workers end with the same weights. A number is the reason with which a run is refused before it starts.
"""
_BESIDE = """## With other synchronisation

Each technique alone; `sync=mixed` with the optimizer on the servers.
"""


def _names(group: str) -> list[str]:
    """Installed choices, the default first."""
    return sorted(plugins.choices(group), key=lambda name: (name != DEFAULTS[group], name))


def _schedulers() -> list[tuple[str, ...]]:
    """Each alone, the default first, and those together that fill different places."""
    known = [(name,) for name in _names("scheduler")]
    places = {name: set(getattr(plugins.load("scheduler", name), "fills", ("scheduler",))) for (name,) in known}
    others = [name for (name,) in known[1:]]
    together = [pair for pair in itertools.combinations(others, 2) if not places[pair[0]] & places[pair[1]]]
    return [*known, *together]


def _alone() -> Iterator[tuple[str, Combination]]:
    default = {group: _names(group)[0] for group in ("topology", "compression", "transport")}
    plain = Combination(**default, scheduler=_schedulers()[0], optimizer="server")
    for group in ("compression", "transport", "topology"):
        for name in _names(group)[1:]:
            yield f"{group}={name}", dataclasses.replace(plain, **{group: name})  # type: ignore[arg-type]
    for (name,) in (s for s in _schedulers()[1:] if len(s) == 1):
        yield f"scheduler={name}", dataclasses.replace(plain, scheduler=(name,))


def _judged(groups: dict[str, Any]) -> str:
    try:
        judge(load(groups))
    except Forbidden as e:
        return str(e)
    return ""


def _cell(refusal: str, reasons: list[str]) -> str:
    if not refusal:
        return "yes"
    if refusal not in reasons:
        reasons.append(refusal)
    return f"no ({reasons.index(refusal) + 1})"


@command
def main() -> int:
    """Exit code 2 where a plugin is missing."""
    print(page(), end="")
    return 0


if __name__ == "__main__":
    takes_no_words("combinations", __doc__)
    sys.exit(main())
