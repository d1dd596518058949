"""yourname keeps what every scheduler must keep: the suite brings the tests. What this one decides, is tested below."""

from geomx_yourname import Yourname

from geomx.testing.scheduler_suite import SchedulerSuite


class TestScheduler(SchedulerSuite):
    choice = "scheduler=yourname"


def test_small_tensors_go_first():
    ranks = [Yourname().rank("w", 0, length, "wan") for length in (10, 1000, 2**40)]
    assert ranks == sorted(ranks, reverse=True)
