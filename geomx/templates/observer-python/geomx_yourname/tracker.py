"""A line for each round, written at once, so that the file is whole up to the moment of any failure."""

import csv
from collections.abc import Mapping
from typing import Any, TextIO

from geomx.api import RunInfo, Tracker

FILE = "rounds.csv"


class CsvTracker(Tracker):
    """options: `geomx_yourname.Yourname`. What a round doesn't tell is left empty."""

    def __init__(self, options: Any) -> None:
        self._columns = list(options.columns)
        self._file: TextIO | None = None

    def start(self, run: RunInfo) -> None:
        self._file = (run.directory / FILE).open("w", buffering=1, newline="")
        self._writer = csv.DictWriter(self._file, self._columns, extrasaction="ignore")
        self._writer.writeheader()

    def round(self, row: Mapping[str, float]) -> None:
        self._writer.writerow(dict(row))

    def end(self, summary: Mapping[str, Any]) -> None:
        if self._file:
            self._file.close()
