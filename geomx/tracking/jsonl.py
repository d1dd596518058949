"""metrics.jsonl: a line a round, written at once, so that it is whole up to the moment of any failure."""

import json
import math
from collections.abc import Mapping
from typing import Any, TextIO

from geomx.api import RunInfo, Tracker

FILE = "metrics.jsonl"


class JsonLines(Tracker):
    """Figures that aren't finite are written as null: JSON has no word for them."""

    def __init__(self) -> None:
        self._file: TextIO | None = None

    def start(self, run: RunInfo) -> None:
        self._file = (run.directory / FILE).open("w", buffering=1)

    def round(self, row: Mapping[str, float]) -> None:
        if self._file:
            self._file.write(json.dumps({k: v if math.isfinite(v) else None for k, v in row.items()}) + "\n")

    def end(self, summary: Mapping[str, Any]) -> None:
        if self._file:
            self._file.close()
