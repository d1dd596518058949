"""tracking=yourname: rounds.csv in the run's directory. Options; the code is in tracker.py, which is imported late."""

from dataclasses import dataclass
from typing import ClassVar

from geomx.api import option


@dataclass
class Yourname:
    columns: list[str] = option(["step", "time", "loss", "accuracy"], "figures of a round, in this order")
    target: ClassVar[str] = "geomx_yourname.tracker:CsvTracker"
