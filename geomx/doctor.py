"""`python -m geomx.doctor`: is this machine ready? Prints a table; exit code 1 if something that is needed is missing.

A check returns a line that says what was found; it raises `Missing` with a sentence that says what to do. Nothing is
changed on the machine, but for files that are removed at once.
"""

import importlib.util
import os
import platform
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from geomx import plugins
from geomx.cli import command, takes_no_words

ENOUGH_FILES = 1024
IMPORT_MXNET = "from geomx.mxshim import mxnet; print(mxnet().__version__)"


class Missing(Exception):
    """What is missing and what to do about it."""


@dataclass(frozen=True)
class Check:
    subject: str
    needed: bool  # without it nothing runs; else some choices don't
    look: Callable[[], str]


def python() -> str:
    if not (3, 10) <= sys.version_info[:2] <= (3, 11):
        raise Missing(f"Python {platform.python_version()}, but 3.10 or 3.11 is needed (MXNet 1.9.1 has no later one)")
    return platform.python_version()


def core() -> str:
    try:
        from geomx import _core
    except ImportError as e:
        raise Missing(f"the C++ core can't be imported: {e}; build it with pip install .") from None
    return f"ABI {_core.ABI_VERSION}"


def installed() -> str:
    if not plugins.offers():
        raise Missing("no entry points found: geomx must be installed, pip install . (or -e .)")
    return f"{len(plugins.offers())} choices"


def broken_plugins() -> str:
    wrong = [text for *_, text in plugins.table() if text]
    if wrong:
        raise Missing("; ".join(wrong))
    return "none"


def mxnet() -> str:
    """In a process of its own: its import takes seconds and leaves threads."""
    if importlib.util.find_spec("mxnet") is None:
        raise Missing("not installed: pip install 'geomx[mxnet]', or use framework=numpy")
    try:
        run = subprocess.run([sys.executable, "-c", IMPORT_MXNET], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        raise Missing("its import didn't end within 120 s") from None
    if run.returncode:
        raise Missing("it can't be imported: " + (run.stderr.strip().splitlines() or ["no message"])[-1])
    return run.stdout.strip()


def digits() -> str:
    if importlib.util.find_spec("sklearn") is None:
        raise Missing("scikit-learn isn't installed, task=digits has no data: pip install scikit-learn")
    return "scikit-learn"


def open_files() -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < ENOUGH_FILES:
        raise Missing(
            f"{soft} files may be open in a process, {ENOUGH_FILES} are advised: ulimit -n {min(hard, 65536)}"
        )
    return f"{soft}"


def own_name() -> str:
    name = socket.gethostname()
    try:
        found = socket.getaddrinfo(name, None)
    except OSError as e:
        raise Missing(f"{name} can't be resolved ({e.strerror}): put it into /etc/hosts") from None
    return f"{name} is {found[0][4][0]}"


def loopback() -> str:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            return f"port {server.getsockname()[1]} is free"
    except OSError as e:
        raise Missing(f"no port of 127.0.0.1 can be listened on: {e.strerror}") from None


def ipv6() -> str:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return "::1 can be used"
    except OSError as e:
        raise Missing(f"::1 can't be listened on ({e.strerror}); IPv4 is used") from None


def shared_memory() -> str:
    try:
        fd = os.memfd_create("geomx-doctor")
        os.truncate(fd, 1 << 20)
        os.close(fd)
    except (OSError, AttributeError) as e:
        raise Missing(f"memfd_create doesn't work ({e}): nodes of one host use TCP, transport.local=false") from None
    return "memfd"


def socket_files() -> str:
    with tempfile.TemporaryDirectory(prefix="geomx-") as folder:
        if len(folder) > 90:
            raise Missing(f"{folder}: too long for socket files, which then go to /tmp; TMPDIR may be shorter")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"{folder}/control")
    return "in " + tempfile.gettempdir()


def cores() -> str:
    return f"{len(os.sched_getaffinity(0))}"


def congestion() -> str:
    file = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    if not file.exists():
        raise Missing("unknown on this system; name it with results that you publish")
    return file.read_text().strip()


def mlflow() -> str:
    """The store's folder; the store itself is made by the first run."""
    if importlib.util.find_spec("mlflow") is None:
        raise Missing("MLflow isn't installed: pip install 'geomx[mlflow]', or use tracking=none")
    from geomx.tracking.mlflow import default_uri, home

    try:
        with tempfile.TemporaryFile(dir=home()):
            pass
    except OSError as e:
        raise Missing(f"{e.filename}: {e.strerror}; set GEOMX_HOME, or use tracking=none") from None
    return default_uri()


CHECKS = (
    Check("Python", True, python),
    Check("core", True, core),
    Check("installation", True, installed),
    Check("processor cores", False, cores),
    Check("open files", False, open_files),
    Check("own host name", False, own_name),
    Check("loopback", True, loopback),
    Check("socket files", False, socket_files),
    Check("shared memory", False, shared_memory),
    Check("IPv6", False, ipv6),
    Check("congestion control", False, congestion),
    Check("framework mxnet", False, mxnet),
    Check("task digits", False, digits),
    Check("tracking mlflow", False, mlflow),
    Check("broken plugins", False, broken_plugins),
)


def examine(check: Check) -> tuple[str, str]:
    """("ok" | "note" | "MISSING", what was found)"""
    try:
        return "ok", check.look()
    except Missing as e:
        return ("MISSING" if check.needed else "note"), str(e)


@command
def main() -> int:
    worst = 0
    for check in CHECKS:
        verdict, found = examine(check)
        print(f"{verdict:8} {check.subject:20} {found}")
        worst |= verdict == "MISSING"
    print("something that is needed is missing" if worst else "ready")
    return int(worst)


if __name__ == "__main__":
    takes_no_words("doctor", __doc__)
    sys.exit(main())
