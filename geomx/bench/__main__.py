"""python -m geomx.bench NAME [--quick] [--case CASE]... | [NAME] --list"""

import argparse
import json
import sys
from collections.abc import Sequence

from geomx.bench import Case, cases_of, find, names, only
from geomx.cli import command
from geomx.errors import Told


@command
def main(arguments: Sequence[str] | None = None) -> int:
    """0 whatever the figures; 1 if a benchmark can't run; 2 for an unknown one."""
    parser = argparse.ArgumentParser(prog="python -m geomx.bench", description="Measures this project against others.")
    parser.add_argument("name", nargs="?", help="which benchmark")
    parser.add_argument("--list", action="store_true", help="names them, or the cases of one that run by themselves")
    parser.add_argument("--case", action="append", default=[], metavar="CASE", help="only this one; may be repeated")
    parser.add_argument("--quick", action="store_true", help="ends within a minute; figures are rougher")
    given = parser.parse_args(arguments)
    if not given.name:
        print("\n".join(names()))
        return 0 if given.list else 2
    run = find(given.name)
    if given.list:
        print("\n".join(cases_of(run)))
        return 0
    if given.case:
        run = only(given.name, run, given.case)
    try:
        cases = run(given.quick)
    except (Told, RuntimeError) as e:
        print(f"geomx: bench {given.name}: {e}", file=sys.stderr)
        return 1
    print(table(cases))
    print(json.dumps({"bench": given.name, "cases": {name: case.row() for name, case in cases.items()}}))
    return 0


def table(cases: dict[str, Case]) -> str:
    """For people."""
    rows = [("case", "ours", "theirs", "unit", "times better")]
    rows += [(name, f"{c.ours:.4g}", f"{c.theirs:.4g}", c.unit, f"{c.ratio:.2f}") for name, c in cases.items()]
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(word.ljust(w) if i in (0, 3) else word.rjust(w) for i, (word, w) in
                               enumerate(zip(row, wide, strict=True))).rstrip() for row in rows)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
