"""How a worker's script ends: a normal end is a leave, an exception a failure that everybody hears of.

One `atexit` hook and one link in `sys.excepthook`, put in when the first store opens. `sys.exit(code)` in a script is
a normal end here, because Python tells no hook its code; under `python -m geomx.exec` any code but 0 is a failure.
"""

import atexit
import contextlib
import os
import sys
import traceback
from types import TracebackType
from typing import Any, Protocol


class Closable(Protocol):
    """What is told of the script's end."""

    def close(self) -> None: ...
    def fail(self, reason: str) -> None: ...


_open: list[Closable] = []
_hooked = False
_heard: str | None = None


def watch(store: Closable) -> None:
    """From now on the end of the script is the end of this store."""
    global _hooked
    _open.append(store)
    if not _hooked:
        _hooked = True
        atexit.register(_leave_all)
        _chain_excepthook()


def forget(store: Closable) -> None:
    """The store was closed by hand."""
    if store in _open:
        _open.remove(store)


def failing(heard: str) -> None:
    """A store is about to fail the run. heard: with what it has failed already, as far as that store knows."""
    global _heard
    _heard = _heard or heard


def heard() -> str | None:
    """The sentence with which the run had failed before this script failed; "" where the script was the first, None
    where no store of it failed."""
    return _heard


def fail_all(error: BaseException) -> None:
    """Tells the cluster that this script failed, with the exception's last line."""
    reason = " ".join("".join(traceback.format_exception_only(type(error), error)).split())
    for store in list(_open):
        with contextlib.suppress(Exception):
            store.fail(reason)


def close_all() -> None:
    """Every open store leaves and closes, the newest first. Raises the first error after trying all."""
    first: Exception | None = None
    for store in reversed(list(_open)):
        try:
            store.close()
        except Exception as e:
            first = first or e
    if first is not None:
        raise first


def _leave_all() -> None:
    try:
        close_all()
    except Exception as e:
        # An exception in an atexit hook would leave the exit code at 0.
        print(f"{type(e).__name__}: {e}", file=sys.stderr)
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(1)


def _chain_excepthook() -> None:
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        shown = before(kind, error, trace)
        fail_all(error)
        return shown

    sys.excepthook = hook
