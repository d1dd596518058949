"""`python -m geomx --cmake-dir`: where plugins that are built elsewhere find the CMake package and the header."""

import argparse
import sys
from pathlib import Path

from geomx.cli import command


@command
def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m geomx", description="To train: python -m geomx.run")
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
