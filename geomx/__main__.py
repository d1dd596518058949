"""`python -m geomx` says which commands there are; `--cmake-dir`: where plugins that are built elsewhere find the CMake
package and the header."""

import argparse
import sys
from pathlib import Path

import geomx
from geomx.cli import command

COMMANDS = """commands, each with -h:
  python -m geomx.run          trains; with -m a sweep
  python -m geomx.plan         what a run or a sweep will send, and take, before it starts
  python -m geomx.report       one page about a run or a sweep
  python -m geomx.exec         an MXNet script, unchanged, as one worker
  python -m geomx.node         a scheduler or a server, by hand
  python -m geomx.timeline     a run's trace.json, where the run was killed before it was made
  python -m geomx.doctor       whether this machine is ready
  python -m geomx.plugins      what is installed
  python -m geomx.plugin       an own plugin, from nothing to proven
  python -m geomx.reference    options, choice by choice
  python -m geomx.combinations what goes with what
  python -m geomx.bench        the benchmarks
"""


@command
def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m geomx", epilog=COMMANDS, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--version", action="version", version=geomx.__version__)
    parser.add_argument("--cmake-dir", action="store_true", help="print the folder for find_package(geomx)")
    parser.add_argument("--include-dir", action="store_true", help="print the folder that holds geomx/plugin.h")
    chosen = parser.parse_args()
    package = Path(__file__).resolve().parent
    if chosen.cmake_dir:
        print(package / "cmake")
    elif chosen.include_dir:
        print(package / "include")
    else:
        parser.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())
