#!/bin/sh
# Prints the Python that .venv is made with: python3.11, else python3.10, else python3 if it is one of these. MXNet's
# wheel runs on no later one.
for name in python3.11 python3.10 python3; do
  if "$name" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 10), (3, 11)))' >/dev/null 2>&1; then
    "$name" -c 'import sys; print(sys.executable)'
    exit 0
  fi
done
found=$(python3 --version 2>/dev/null || echo "no python3")
echo "GeoMX needs Python 3.10 or 3.11 (MXNet 1.9.1 runs on no later one), but there is $found here." >&2
echo "Install one, or say where it is: make PYTHON=/path/to/python3.11 ..." >&2
exit 1
