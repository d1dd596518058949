"""What every observer must keep: it survives whatever a run shows it, and never loses the run.

class TestMine(ObserverSuite):
    choice = "tracking=mine"
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomx import plugins
from geomx.api import RunInfo, Tracker
from geomx.testing.plugin_suite import PluginSuite
from geomx.testing.runs import SHORT, Run
from geomx.tracking.jsonl import FILE, JsonLines
from geomx.tracking.observers import Observers

CONFIG = {"task": {"name": "digits"}, "scheduler": {"fifo": {"part_elements": 1}}, "target": {"accuracy": None},
          "topology": {"parties": [{"name": "a"}]}, "seed": 1}  # fmt: skip
ROW = {"step": 1, "time": 0.5, "loss": 1.5, "samples": 32, "compute_s": 0.1, "wait_s": 0.2, "wan_up_bytes": 10}
ENDS: dict[str, dict[str, Any]] = {
    "finished": {"status": "finished", "error": None, "accuracy": 0.97},
    "failed": {"status": "failed", "error": "worker 0 of party a: ValueError: boom, with ünicode", "accuracy": None},
    "interrupted": {"status": "failed", "error": "interrupted", "accuracy": None},
}


class ObserverSuite(PluginSuite):
    def test_a_whole_run(self, tmp_path: Path) -> None:
        self._seen(tmp_path, [{**ROW, "step": i} for i in range(1, 101)])

    def test_figures_may_be_missing_or_new(self, tmp_path: Path) -> None:
        rows: list[dict[str, float]] = [ROW, {"step": 2, "time": 0.6, "samples": 32}]
        self._seen(tmp_path, [*rows, {**ROW, "step": 3, "accuracy": 0.5, "figure of a technique": 1e300}])

    def test_figures_may_be_no_numbers(self, tmp_path: Path) -> None:
        values = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 10**30)
        self._seen(tmp_path, [{**ROW, "step": i + 1, "loss": value} for i, value in enumerate(values)])

    def test_a_run_may_end_before_its_first_round(self, tmp_path: Path) -> None:
        self._seen(tmp_path, [])

    def test_a_run_may_fail(self, tmp_path: Path) -> None:
        for how in ("failed", "interrupted"):
            self._seen(tmp_path / how, [ROW], how)

    def test_runs_of_a_sweep_do_not_mix(self, tmp_path: Path) -> None:
        trackers = [self._tracker() for _ in range(2)]
        for number, tracker in enumerate(trackers):
            (tmp_path / f"job{number}").mkdir()
            tracker.start(RunInfo(directory=tmp_path / f"job{number}", config=CONFIG, in_sweep=True))
        for tracker in trackers:
            tracker.round(ROW)
        for tracker in reversed(trackers):
            tracker.end(summary("finished"))

    def test_the_run_can_be_found_again(self, tmp_path: Path) -> None:
        tracker = self._seen(tmp_path, [ROW])
        found = tracker.run_id
        assert found is None or isinstance(found, str), f"run_id: expected a text or None, got {found!r}"

    def test_when_it_breaks_the_run_goes_on(self, tmp_path: Path) -> None:
        tracker = self._tracker()
        broken: Any = type("Broken", (type(tracker),), {"round": _raise, "end": _raise})
        watching = Observers([object.__new__(broken), JsonLines()])
        vars(watching._trackers[0]).update(vars(tracker))
        logging.disable(logging.WARNING)
        try:
            watching.start(RunInfo(directory=tmp_path, config=CONFIG))
            watching.round(ROW)
            watching.end(summary("finished"))
        finally:
            logging.disable(logging.NOTSET)
        lines = (tmp_path / FILE).read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1], f"expected {FILE} with one round, got {lines}"

    def test_a_short_training(self) -> None:
        group, _, _ = self.choice.partition("=")
        words = [f"{group}.{name}={value}" for name, value in self.options.items()]
        with Run(*SHORT, self.choice, *words) as run:
            code = run.wait()
            assert code == 0, f"expected exit code 0, got {code}: {run.last_line()}"
            assert "is given up" not in run.printed(), f"the run gave it up: {run.printed('is given up')}"

    def _tracker(self) -> Tracker:
        options = self.made()
        tracker: Tracker = plugins.target(options)(options)
        assert isinstance(tracker, Tracker), f"expected a geomx.api.Tracker, got {type(tracker).__name__}"
        return tracker

    def _seen(self, directory: Path, rows: list[dict[str, float]], how: str = "finished") -> Tracker:
        directory.mkdir(exist_ok=True)
        tracker = self._tracker()
        tracker.start(RunInfo(directory=directory, config=CONFIG))
        for row in rows:
            tracker.round(row)
        tracker.end(summary(how))
        return tracker


def summary(how: str) -> Mapping[str, Any]:
    return {"config": CONFIG, "nodes": [], "rounds": 1, "samples": 32, "seconds": 1.0, "loss": 1.5, "ledger": {},
            "mlflow_run_id": None, "traffic": {"wan": {}, "lan": {}}, **ENDS[how]}  # fmt: skip


def _raise(self: object, given: object) -> None:
    raise OSError("the suite lets it break")
