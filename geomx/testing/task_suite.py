"""What every task must keep: workers make the same data, and each has its own share of it.

class TestMine(TaskSuite):
    choice = "task=mine"
"""

import dataclasses
import hashlib
from itertools import islice
from typing import Any

import numpy as np
import pytest

from geomx import plugins
from geomx.tasks import Data, Task
from geomx.testing.plugin_suite import PluginSuite, elsewhere
from geomx.testing.training import Config

SHORT = {"max_rounds": 100, "eval_every": 0}
STEPS = 50


class TaskSuite(PluginSuite):
    def config(self) -> Config:
        """So short that it ends soon, where its options know how."""
        chosen = super().config()
        known = {f.name for f in dataclasses.fields(self.made())}
        return {**chosen, "task": {**{k: v for k, v in SHORT.items() if k in known}, **chosen["task"]}}

    def test_data_are_of_the_kinds_that_models_take(self) -> None:
        data = self._data()
        for x, y in ((data.train_x, data.train_y), (data.test_x, data.test_y)):
            kind = np.uint8 if data.is_text else np.float32
            assert x.dtype == kind, f"expected samples of {np.dtype(kind)}, got {x.dtype}"
            assert y.dtype == np.int32, f"expected labels of int32, got {y.dtype}"
            assert len(x) == len(y) > 0, f"expected a label for each sample, got {len(x)} samples and {len(y)} labels"
            assert data.is_text or x.ndim == 4, f"expected (samples, channels, height, width), got {x.shape}"
            assert 0 <= y.min() <= y.max() < data.num_classes, (
                f"expected labels below {data.num_classes}, got {y.max()}"
            )
            assert np.isfinite(x).all(), "expected numbers in all samples"

    def test_every_worker_makes_the_same_data(self) -> None:
        self._data()
        group, _, name = self.choice.partition("=")
        given = {"name": name, **self.options}
        here, there = digest(group, given), elsewhere("geomx.testing.task_suite:digest", group, given)
        assert here == there, "the data differ between two processes: workers would train on different ones"

    def test_workers_take_equal_shares(self) -> None:
        steps = [sum(1 for _ in self._steps(rank, 3)) for rank in range(3)]
        assert len(set(steps)) == 1, f"expected as many steps on each worker, got {steps}"
        assert steps[0] > 0, "expected some steps on each of three workers, got none"

    def test_workers_do_not_share_samples(self) -> None:
        self._data()
        one, other = (next(iter(self._steps(rank, 2))) for rank in (0, 1))
        assert not np.array_equal(one.x, other.x), "two workers' first batches are the same"

    def test_a_worker_has_the_same_steps_in_each_run(self) -> None:
        for first, again in zip(self._steps(0, 2), self._steps(0, 2), strict=True):
            same = np.array_equal(first.x, again.x) and np.array_equal(first.y, again.y)
            assert same, "the same seed gave other batches when asked again"

    def _task(self) -> Task:
        options = self.made()
        task: Task = plugins.target(options)(options)
        return task

    def _data(self) -> Data:
        data = self._task().data
        if data is None:
            pytest.skip("it has no data")
        return data

    def _steps(self, rank: int, world: int) -> list[Any]:
        return list(islice(self._task().batches(rank, world, 1), STEPS))


def digest(group: str, given: dict[str, object]) -> str:
    """Of all that is trained and tested on."""
    options = plugins.options(group, given)
    data: Data = plugins.target(options)(options).data
    found = hashlib.sha256()
    for values in (data.train_x, data.train_y, data.test_x, data.test_y):
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()
