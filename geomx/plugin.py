"""An own plugin, from nothing to proven.

    python -m geomx.plugin new codec squash                  # ./geomx-squash: a distribution that works
    python -m geomx.plugin new codec squash --language c     # the same with its codec in C
    pip install ./geomx-squash
    python -m geomx.plugin check geomx-squash                # everything that its kind must keep, and a short training

`new` writes the smallest whole plugin of a kind: a pyproject.toml with its entry point, options, the code, a README
and a test that inherits the suite of its kind. It does something real, so that it can be chosen as it is.

`check` finds what an installed distribution offers and runs the suites of `geomx.testing` for it, in a process of
their own: options (composed, explained, read back from YAML, refused where they are wrong), what the kind must keep,
and a short training. Exit codes: 0 all passed; 1 something failed, each with a sentence; 2 there is nothing to check.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from geomx import scaffold
from geomx.cli import command


@command
def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.command == "new":
        return _new(given.kind, given.name, given.language, given.directory)
    from geomx import conformance  # needs what `new` doesn't

    return conformance.check(given.distribution)


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m geomx.plugin", description=__doc__, formatter_class=form)
    commands = parser.add_subparsers(dest="command", required=True, metavar="new | check")
    new = commands.add_parser("new", help="write a distribution", description=_kinds(), formatter_class=form)
    new.add_argument("kind", metavar="KIND", help=", ".join(scaffold.languages()))
    new.add_argument("name", metavar="NAME", help="what it is chosen by; small letters, digits and _")
    new.add_argument("--language", default="", help="of its code, where a kind has several; default: the first")
    new.add_argument("--directory", type=Path, help="folder to write; default: ./geomx-NAME")
    about = "Runs what every plugin of its kind must keep; python -m geomx.plugin -h says more."
    check = commands.add_parser("check", help="run the conformance suites", description=about)
    check.add_argument("distribution", metavar="DIST", nargs="+", help="as pip knows it, for example geomx-squash")
    return parser


def _kinds() -> str:
    rows = [
        f"  {kind:10}  {', '.join(languages):15} {scaffold.what(kind)}"
        for kind, languages in scaffold.languages().items()
    ]
    return "\n".join(["Writes a distribution with one plugin. Kinds, languages, what is written:", "", *rows])


def _new(kind: str, name: str, language: str, directory: Path | None) -> int:
    folder, files = scaffold.write(kind, name, language, directory)
    print("\n".join(f"{folder / file}" for file in files))
    place = folder if folder.is_absolute() else f"./{folder}"  # without a slash pip would ask an index for it
    print(f"\npip install {place}\npython -m geomx.plugin check {scaffold.distribution_name(name)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
