"""`python -m geomx.run`: the entry that Hydra serves.

Exit codes: 0 finished, 1 a run failed, 2 the configuration is refused, 130 after Ctrl-C (128 + signal for SIGTERM and
SIGHUP).
"""

import logging
import os
import signal
import sys
from types import FrameType

import hydra

from geomx import app, plugins, sweep
from geomx.cli import command
from geomx.config import source
from geomx.errors import ConfigError, RunFailed
from geomx.sentences import sentence


class Interrupted(KeyboardInterrupt):
    """SIGTERM or SIGHUP: what Ctrl-C does, with an exit code of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def install() -> None:
    """Everything that must be known before Hydra composes."""
    source.install()
    sweep.install()


@command
def main() -> int:
    full = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise to us instead of printing a trace and exiting with 1
    logging.raiseExceptions = False  # a run goes on when nobody reads its lines any more; its directory has them
    _interrupt_on_signals()
    install()
    app.failure.clear()
    try:
        # an absolute path: a relative one becomes pkg://, which wants an __init__.py in conf/
        hydra.main(version_base="1.3", config_path=str(plugins.CONF), config_name="config")(app.job)()
        if app.failure:
            raise app.failure[0]
        return 0
    except KeyboardInterrupt as e:
        print("geomx: interrupted", file=sys.stderr)
        return getattr(e, "exit_code", 130)
    except Exception as e:
        if full or (isinstance(e, BrokenPipeError) and not app.failure):
            raise
        print(f"geomx: {sentence(e)}", file=sys.stderr)
        ran = isinstance(e, RunFailed) or (e in app.failure and not isinstance(e, ConfigError))
        return 1 if ran else 2


def _interrupt_on_signals() -> None:
    def interrupt(number: int, _: FrameType | None) -> None:
        raise Interrupted(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, interrupt)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored


if __name__ == "__main__":
    sys.exit(main())
