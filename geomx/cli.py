"""What all commands (`python -m geomx.NAME`) have in common is how they end; `main` says only what is its own."""

import argparse
import contextlib
import functools
import os
import select
import sys
from collections.abc import Callable
from typing import ParamSpec, TextIO

from geomx.errors import ConfigError, Told

REFUSED, FAILED, INTERRUPTED = 2, 1, 130
UNREAD = 141  # what a shell shows for a program that SIGPIPE has ended
P = ParamSpec("P")


def command(main: Callable[P, int]) -> Callable[P, int]:
    """A sentence instead of a stack trace for what is Told and for Ctrl-C. Where nobody reads the output any more
    (`... | head`), an end without a word."""

    @functools.wraps(main)
    def run(*given: P.args, **named: P.kwargs) -> int:
        try:
            return main(*given, **named)
        except Told as e:
            return _say(e, REFUSED if isinstance(e, ConfigError) else FAILED)
        except KeyboardInterrupt:
            return _say("interrupted", INTERRUPTED)
        except BrokenPipeError:
            if not any(map(_is_unread, (sys.stdout, sys.stderr))):  # then it is another pipe: a fault like any other
                raise
            return UNREAD
        finally:
            for stream in (sys.stdout, sys.stderr):
                _flush(stream)

    return run


def takes_no_words(name: str, doc: str | None) -> None:
    """Of a command without arguments: -h is answered, another word is refused with exit code 2, before it begins."""
    text = (doc or "").partition("\n\n")[0]
    argparse.ArgumentParser(prog=f"python -m geomx.{name}", description=text).parse_args()


def _say(what: object, code: int) -> int:
    with contextlib.suppress(BrokenPipeError):
        print(f"geomx: {what}", file=sys.stderr)
    return code


def _is_unread(stream: TextIO) -> bool:
    poll = select.poll()
    poll.register(stream, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _flush(stream: TextIO) -> None:
    """Here, since the interpreter would complain of what it can't flush at its end."""
    try:
        stream.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
