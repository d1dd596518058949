"""How a node notices that it must end: its launcher is gone, or a signal came while the core waits.

A wait inside the core doesn't return to Python, so Python's own signal handlers may come late. Both watchers here are
threads of their own; they ask the core politely first and end the process if that doesn't help.
"""

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable

POLITE_S = 2.0  # between asking the core to fail and ending the process
log = logging.getLogger("geomx")


def end_with_pipe(fd: int) -> None:
    """Ends the process once the other end of `fd` is closed: whoever started this node is gone."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(fd, 4096):
                pass
        log.error("the launcher is gone, this node ends")
        logging.shutdown()
        os._exit(1)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def end_on_interrupt(fail: Callable[[str], None]) -> None:
    """After SIGINT: if Python didn't get to raise KeyboardInterrupt, `fail` is called, and at last the process ends.

    Only from the main thread."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with SIGINT ignored
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def watch() -> None:
        while signal.SIGINT not in os.read(reader, 64):
            pass
        threading.Event().wait(POLITE_S / 4)  # a wait that checks for signals has returned by now
        with contextlib.suppress(Exception):
            fail("interrupted")
        threading.Event().wait(POLITE_S)
        logging.shutdown()
        os._exit(130)

    threading.Thread(target=watch, name="interrupt", daemon=True).start()
