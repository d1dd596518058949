"""All trackers of a run as one. What goes wrong in an observer after the start never ends a run."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from geomx import plugins
from geomx.api import RunInfo, Tracker
from geomx.config import Config
from geomx.errors import RunFailed, Told
from geomx.tracking.jsonl import JsonLines

log = logging.getLogger("geomx")


class Observers(Tracker):
    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = list(trackers)

    def start(self, run: RunInfo) -> None:
        """Raises RunFailed with a sentence if one of them can't start."""
        for tracker in self._trackers:
            try:
                tracker.start(run)
            except Told:
                raise
            except Exception as e:
                raise RunFailed(f"{_name(tracker)} can't start: {type(e).__name__}: {_first_line(e)}") from e

    def round(self, row: Mapping[str, float]) -> None:
        self._each("round", row)

    def end(self, summary: Mapping[str, Any]) -> None:
        self._each("end", summary)

    @property
    def run_id(self) -> str | None:
        return next((t.run_id for t in self._trackers if t.run_id), None)

    def _each(self, what: str, given: Mapping[str, Any]) -> None:
        for tracker in list(self._trackers):
            try:
                getattr(tracker, what)(given)
            except Exception as e:
                log.warning("%s is given up: %s: %s", _name(tracker), type(e).__name__, _first_line(e))
                self._trackers.remove(tracker)


def observers(config: Config) -> Observers:
    """JSON lines, and what `tracking` chooses. Raises ConfigError if that can't be had."""
    trackers: list[Tracker] = [JsonLines()]
    if config.tracking.target:
        trackers.append(plugins.target(config.tracking)(config.tracking))
    return Observers(trackers)


def _name(tracker: Tracker) -> str:
    return type(tracker).__name__


def _first_line(e: Exception) -> str:
    return (str(e).splitlines() or ["no message"])[0]
