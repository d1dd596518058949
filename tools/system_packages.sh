#!/bin/sh
# Installs the Debian or Ubuntu packages that the build needs and that are missing; where it may not, says exactly what
# to install. Does nothing, quickly, when all are there. $1: the Python that will be used (optional).
set -eu

python=${1:-}
needed="g++ make libzmq3-dev cppzmq-dev libhwy-dev doctest-dev libgomp1"

if [ -z "$python" ] && ! python=$("$(dirname "$0")/find_python.sh" 2>/dev/null); then
  needed="$needed python3 python3-venv python3-dev"
else
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  "$python" -c 'import ensurepip, venv' 2>/dev/null || needed="$needed python$version-venv"
  headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  [ -e "$headers/Python.h" ] || needed="$needed python$version-dev"
fi

is_there() {
  case $1 in
    g++ | make) command -v "$1" >/dev/null ;;
    libzmq3-dev) [ -e /usr/include/zmq.h ] ;;
    cppzmq-dev) [ -e /usr/include/zmq.hpp ] ;;
    libhwy-dev) [ -e /usr/include/hwy/highway.h ] ;;
    doctest-dev) [ -e /usr/include/doctest/doctest.h ] ;;
    *) dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed ;;
  esac
}

missing=""
for package in $needed; do
  is_there "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "These Debian packages, or what they are called here, are missing:$missing" >&2
  echo "Install them and run make again." >&2
  exit 1
fi

as_root=""
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root="sudo"
  else
    echo "Some system packages are missing, and installing them needs root. Please run:" >&2
    echo "    sudo apt-get update && sudo apt-get install -y$missing" >&2
    echo "and then make again." >&2
    exit 1
  fi
fi

echo "Installing system packages:$missing"
$as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
