"""yourname keeps what every observer must keep: the suite brings the tests. What this one writes, is tested below."""

from geomx_yourname import Yourname
from geomx_yourname.tracker import FILE, CsvTracker

from geomx.api import RunInfo
from geomx.testing.observer_suite import ObserverSuite


class TestObserver(ObserverSuite):
    choice = "tracking=yourname"


def test_a_line_for_each_round(tmp_path):
    tracker = CsvTracker(Yourname(columns=["step", "accuracy"]))
    tracker.start(RunInfo(directory=tmp_path, config={}))
    tracker.round({"step": 1, "loss": 0.5})
    tracker.round({"step": 2, "accuracy": 0.25})
    assert (tmp_path / FILE).read_text().split() == ["step,accuracy", "1,", "2,0.25"]
    tracker.end({"status": "finished"})
