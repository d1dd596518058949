"""yourname keeps what every task must keep: the suite brings the tests. What this one makes is tested below."""

from geomx_yourname import Yourname
from geomx_yourname.task import make

from geomx.testing.task_suite import TaskSuite


class TestTask(TaskSuite):
    choice = "task=yourname"


def test_there_are_as_many_images_as_asked_for():
    data = make(Yourname(samples=40)).data
    assert data is not None
    assert data.train_x.shape == (40, 1, 8, 8)
    assert data.test_x.shape == (10, 1, 8, 8)
