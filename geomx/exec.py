"""An own script, unchanged, as one worker: `python -m geomx.exec SCRIPT [arguments]`.

Who this worker is, says the environment: the seed's DMLC_* variables, or GEOMX_SPEC=FILE with a node spec. The script
finds `mx.kv.create("dist_sync")` served by this project. Exit codes: the script's own; 1 if it raised, or if the run
failed; 2 if the configuration is refused; 130 after Ctrl-C. A normal end is a leave, anything else fails the run.
"""

import os
import runpy
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from geomx import env, exits
from geomx.errors import ConfigError
from geomx.kv import Error


@dataclass(frozen=True)
class End:
    """How a script ended: an exit code, and the exception that ended it, if one did."""

    code: int
    error: BaseException | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0].startswith("-"):
        asked = bool(given) and given[0] in ("-h", "--help")
        print(f"usage: python -m geomx.exec SCRIPT [arguments]\n\n{__doc__}" if asked else _usage(given),
              file=sys.stdout if asked else sys.stderr, end="" if asked else "\n")  # fmt: skip
        return 0 if asked else 2
    return run(given).code


def run(given: list[str]) -> End:
    """Runs a script with its arguments. Says why it failed on standard error; raises nothing."""
    try:
        _prepare(given[0])
    except ConfigError as e:
        return End(_say(f"geomx: {e}", 2), e)
    try:
        return _run(given)
    finally:
        sys.stdout.flush()


def _usage(given: list[str]) -> str:
    what = f"{given[0]}: no such option" if given else "SCRIPT: not given"
    return f"geomx: {what}; it is python -m geomx.exec SCRIPT [arguments]"


def _prepare(script: str) -> None:
    if not Path(script).is_file():
        raise ConfigError(f"script: {script!r} given, there is no such file")
    from geomx import connect

    for line in env.notes(os.environ):
        _say(f"geomx: {line}", 0)
    connect.spec_of(os.environ)  # refused before the script does anything
    import geomx.mxnet  # noqa: F401


def _run(given: list[str]) -> End:
    sys.argv = given
    sys.path.insert(0, str(Path(given[0]).absolute().parent))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with SIGINT ignored
    try:
        runpy.run_path(given[0], run_name="__main__")
    except SystemExit as e:
        return _exited(e)
    except KeyboardInterrupt as e:
        exits.fail_all(e)
        return End(_say("geomx: interrupted", 130), e)
    except ConfigError as e:
        exits.fail_all(e)
        return End(_say(f"geomx: {e}", 2), e)
    except BaseException as e:
        _show(e)
        exits.fail_all(e)
        return End(1, e)
    return _leave()


def _exited(e: SystemExit) -> End:
    """sys.exit(): a number is the code, nothing is 0, a text is printed and means 1."""
    code = e.code if isinstance(e.code, int) else 0 if e.code is None else _say(str(e.code), 1)
    if code == 0:
        return _leave()
    exits.fail_all(RuntimeError(f"the script ended with exit code {code}"))
    return End(code)


def _leave() -> End:
    """What the script pushed must have arrived before its end counts as normal."""
    try:
        exits.close_all()
    except KeyboardInterrupt as e:
        exits.fail_all(e)
        return End(_say("geomx: interrupted", 130), e)
    except Exception as e:
        exits.fail_all(e)
        return End(_say(f"geomx: {e}", 1), e)
    return End(0)


def _show(error: BaseException) -> None:
    """The script's traceback, without this module's own lines at its head; of an error of the run its sentence, and
    where the script was."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    if not isinstance(error, Error):
        traceback.print_exception(type(error), error, trace)
        return
    print(f"geomx: {error}", file=sys.stderr)
    own = [f for f in traceback.extract_tb(trace) if not _is_library(f.filename)]
    if own:
        print(f"  in {own[-1].filename}, line {own[-1].lineno}", file=sys.stderr)


def _is_library(file: str) -> bool:
    return file.startswith(("<", str(Path(__file__).parent))) or "site-packages" in file


def _say(line: str, code: int) -> int:
    print(line, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
