"""The nodes' processes: started in sessions of their own, and none left behind.

Each node holds the read end of a pipe as its standard input: its first line is the node's spec, and its end tells the
node that the launcher is gone, wherever it runs. On this machine the kernel kills nodes whose launcher is killed, too.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from geomx.errors import RunFailed
from geomx.spec import NodeSpec

PR_SET_PDEATHSIG = 1
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: nothing may be loaded between fork and exec


class Processes:
    """Owned by the main thread: a process dies with the thread that started it (PR_SET_PDEATHSIG)."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.exit_codes: dict[str, int] = {}

    @property
    def running(self) -> list[str]:
        return list(self._running)

    def start(self, node: NodeSpec, command: list[str], environment: dict[str, str], log: Path) -> int:
        """Returns the process id. Raises RunFailed if the command can't be started."""
        with log.open("ab") as output, uninterrupted():  # or a child that was just made would not be known to us
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,  # Ctrl-C is the launcher's; a whole node can be signalled
                    preexec_fn=_die_with_parent,
                )
            except OSError as e:
                raise RunFailed(f"{node.title}: can't start {command[0]}: {e.strerror}") from None
            self._running[node.name] = process
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already: poll() tells
            process.stdin.write(node.to_json().encode() + b"\n")
            process.stdin.flush()
        return process.pid

    def poll(self) -> Iterator[tuple[str, int]]:
        """(name, exit code) of each process that has ended since the last call; a signal's number is negative."""
        for name, process in list(self._running.items()):
            if (code := process.poll()) is not None:
                self._ended(name, code)
                yield name, code

    def stop(self, within_s: float) -> None:
        """Asks all that run to end, and kills those that still run after `within_s`."""
        deadline = time.monotonic() + within_s
        self._signal(signal.SIGTERM)
        for process in self._running.values():
            with contextlib.suppress(BrokenPipeError, OSError):
                if process.stdin:
                    process.stdin.close()
        for process in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        self.kill()

    def kill(self) -> None:
        """All are gone when this returns."""
        with uninterrupted():
            self._signal(signal.SIGKILL)
            for name, process in list(self._running.items()):
                self._ended(name, process.wait())

    def _ended(self, name: str, code: int) -> None:
        process = self._running.pop(name)
        self.exit_codes[name] = code
        with contextlib.suppress(BrokenPipeError, OSError):
            if process.stdin:
                process.stdin.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # what a node may have started itself

    def _signal(self, number: int) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that would end this process wait until the block is over; elsewhere than on the main thread, nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {n: signal.signal(n, lambda number, _: came.append(number)) for n in ENDING if _is_handled(n)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def _is_handled(number: int) -> bool:
    """Not ignored (nohup), and not set by something else than Python, which couldn't be put back."""
    return signal.getsignal(number) not in (signal.SIG_IGN, None)


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
