#!/bin/sh
# launchers/example.sh cpu|gpu PROGRAM [words for geomx.run]: one of examples/ on every worker of a run on this machine:
# two parties of two workers, and a master worker that sets everything up.
set -eu
device=$1 program=$2
shift 2
cd "$(dirname "$0")/.."
[ -f "examples/$program" ] || { echo "examples/$program is not here: run this from a checkout" >&2; exit 2; }
if [ -z "${PYTHON:-}" ]; then
  PYTHON=python
  [ ! -x .venv/bin/python ] || PYTHON=.venv/bin/python
fi
arguments=
case $device in
  cpu) arguments=--cpu ;;
  gpu)
    "$PYTHON" -c 'import sys
from geomx.mxnet import mx
sys.exit(not mx.context.num_gpus())' >/dev/null 2>&1 || {
      echo "MXNet has no usable GPU here; launchers/cpu has the same run without one" >&2
      exit 2
    } ;;
  *) echo "launchers/example.sh: cpu or gpu is needed, $device given" >&2; exit 2 ;;
esac
exec "$PYTHON" -m geomx.run task=script task.script="examples/$program" "task.arguments=[$arguments]" \
  topology.observer=yes "$@"
