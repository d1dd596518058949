"""`python -m geomx.reference`: options as Markdown, made from the dataclasses that declare and check them.

    python -m geomx.reference                       every option of every installed choice
    python -m geomx.reference transport=dgt run     some of it
    python -m geomx.reference --write FILE...       renews what stands between the marks of these files

A file says by marks what it wants and where:

    <!-- reference: transport=dgt -->
    <!-- end of reference -->

Subjects are choices (GROUP=NAME; with "table" before it, without what it says of itself), the names in `PARTS`,
`presets` (of network=) and `variables` (of the environment).
"""

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from geomx import env, plugins
from geomx.cli import command
from geomx.config.network import Access, Network, Pair
from geomx.config.root import MANY, Config, Ledger, Sweep, Target, Timeouts, Trace
from geomx.config.topology import Party
from geomx.errors import ConfigError
from geomx.options import allowed_text, fields_of

# What is no choice of a group: subject -> what its options' names begin with, and where they are declared.
PARTS: dict[str, tuple[str, type]] = {
    "run": ("", Config),
    "target": ("target", Target),
    "timeouts": ("timeouts", Timeouts),
    "trace": ("trace", Trace),
    "ledger": ("ledger", Ledger),
    "sweep": ("sweep", Sweep),
    "network": ("network", Network),
    "network.access": ("network.access.PARTY", Access),
    "network.pairs": ("network.pairs.PARTY.PARTY", Pair),
    "topology.parties": ("", Party),
}
END = "<!-- end of reference -->"
_MARKED = re.compile(rf"(<!-- reference: (.+?) -->\n).*?{END}", re.DOTALL)
Row = tuple[str, str, str, str]


def renewed(text: str) -> str:
    """A Markdown file's text with everything between its marks as it is now. Raises ConfigError for a subject that
    there isn't."""
    return _MARKED.sub(lambda found: f"{found[1]}\n{block(found[2])}\n\n{END}", text)


def subjects(text: str) -> list[str]:
    """What a file's marks ask for."""
    return [found[2] for found in _MARKED.finditer(text)]


def block(subject: str) -> str:
    """The Markdown of one subject, without a heading. Raises ConfigError for one that there isn't."""
    if subject == "variables":
        return _table(("variable", "allowed", "what", "setting"), map(_variable, env.variables()))
    if subject == "presets":
        return _table(("choice", "what", "options"), map(_preset, plugins.presets("network")))
    group, chosen, name = subject.removeprefix("table ").partition("=")
    if chosen:
        return _choice(group, name, with_words=not subject.startswith("table "))
    if subject not in PARTS:
        raise ConfigError(
            f"reference: {subject!r} given, allowed is a choice such as transport=zmq, or one of "
            + ", ".join([*PARTS, "presets", "variables"])
        )
    return _options(*PARTS[subject])


def _choice(group: str, name: str, with_words: bool) -> str:
    cls = plugins.load(group, name)
    if group in plugins.FUNCTIONS:
        raise ConfigError(f"reference: {group}={name} has no options")
    said = [_docstring(cls, f"{group}={name}") if with_words else ""]
    said.append(_options(f"{group}.{name}" if group in MANY else group, cls))
    for other, reason in getattr(cls, "forbids", {}).items():
        said.append(f"Refused with `{other}`: {reason}.")
    for other, reason in getattr(cls, "needs", {}).items():
        said.append(f"Needs `{other}`: {reason}.")
    return "\n\n".join(filter(None, said))


def _options(prefix: str, cls: type) -> str:
    rows = list(_rows(prefix, cls))
    return _table(("option", "default", "allowed", "what"), rows) if rows else "No options."


def _rows(prefix: str, cls: type) -> Iterator[Row]:
    """An option a row; the options of nested dataclasses follow in their place. Of the root only what is no group."""
    for f in dataclasses.fields(cls):
        name = f"{prefix}.{f.name}".lstrip(".")
        value = _default(f)
        if fields_of(value):
            if cls is not Config:
                yield from _nested(name, value)
        elif "help" in f.metadata and not (cls is Config and f.name in MANY):
            own = "; each node has its own" if f.metadata["scope"] == "node" else ""
            yield f"`{name}`", _shown(value), _allowed(cls, f.name), f.metadata["help"] + own


def _nested(prefix: str, config: Any) -> Iterator[Row]:
    """The options of an object that is an option itself; its values are the defaults, not its class's."""
    for name, _, allowed, what in _rows(prefix, type(config)):
        yield name, _shown(getattr(config, name.strip("`").rpartition(".")[2])), allowed, what


def _default(f: Any) -> Any:
    if f.default_factory is not dataclasses.MISSING:
        return f.default_factory()
    return "???" if f.default is dataclasses.MISSING else f.default


def _shown(value: Any) -> str:
    return "required" if value == "???" else f"`{json.dumps(value, ensure_ascii=False)}`" if value != "" else "empty"


def _allowed(cls: type, name: str) -> str:
    text = allowed_text(cls, name)
    return "" if text == "Any" else text


def _docstring(cls: type, choice: str) -> str:
    """What a class says of itself, else what its module says of this choice; `dataclass` writes a signature where
    nobody wrote anything."""
    said = vars(cls).get("__doc__") or ""
    if said.startswith(f"{cls.__name__}("):
        of_module = sys.modules[cls.__module__].__doc__ or ""
        said = of_module.partition("\n\n")[0] if of_module.startswith(f"{choice}:") else ""
    said = " ".join(said.split()).removeprefix(choice).lstrip(":").strip()
    return said[:1].upper() + said[1:]


def _variable(known: env.Variable) -> tuple[str, ...]:
    return f"`{known.name}`", known.allowed, known.meaning, f"`{known.setting}`" if known.setting else ""


def _preset(name: str) -> tuple[str, ...]:
    """A file's first comment says what it is; its lines are options."""
    lines = (plugins.CONF / "network" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    comments = " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))
    options = [line for line in lines if ":" in line and not line.startswith(("#", "name:"))]
    return f"`network={name}`", comments, ", ".join(f"`{o.replace(': ', '=')}`" for o in options)


def _table(head: Sequence[str], rows: Any) -> str:
    cells = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)


def whole() -> str:
    """Everything that is installed, with headings."""
    choices = [f"{group}={name}" for group, name in sorted(plugins.offers()) if group not in plugins.FUNCTIONS]
    return "\n\n".join(f"## {subject}\n\n{block(subject)}" for subject in (*PARTS, "presets", *choices, "variables"))


@command
def main(arguments: Sequence[str] | None = None) -> int:
    """0; 2 for a subject or a file that there isn't."""
    parser = argparse.ArgumentParser(prog="python -m geomx.reference", description="Options, from their dataclasses.")
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help="a choice (transport=zmq), run, variables, ...")
    parser.add_argument("--write", nargs="+", type=Path, metavar="FILE", help="renew what is between a file's marks")
    given = parser.parse_args(arguments)
    if given.write:
        _renew(given.write)
    else:
        print("\n\n".join(map(block, given.subjects)) if given.subjects else whole())
    return 0


def _renew(files: Sequence[Path]) -> None:
    """Names those that change. Raises ConfigError."""
    for file in files:
        try:
            before = file.read_text(encoding="utf-8")
            after = renewed(before)
            if after != before:
                file.write_text(after, encoding="utf-8")
                print(file)
        except OSError as e:
            raise ConfigError(f"reference: {file}: {e.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
