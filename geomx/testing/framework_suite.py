"""What every framework adapter must keep: a model whose arrays stay where they are, and whose gradients are right.

class TestMine(FrameworkSuite):
    choice = "framework=mine"
"""

from typing import Any

import numpy as np

from geomx import plugins
from geomx.frameworks import Model
from geomx.tasks import Batch, Task
from geomx.testing.plugin_suite import PluginSuite
from geomx.testing.training import Config


class FrameworkSuite(PluginSuite):
    def config(self) -> Config:
        """With a rate at which small models learn in so few rounds."""
        chosen = super().config()
        return {"sync": {"name": "fsa", "optimizer": {"learning_rate": 0.01}}, **chosen}

    def test_names_weights_and_gradients_belong_together(self) -> None:
        model, _ = self._model()
        counts = (len(model.names), len(model.weights), len(model.gradients))
        assert len(set(counts)) == 1, f"expected as many names, weights and gradients, got {counts}"
        assert len(set(model.names)) == len(model.names), f"expected names that differ, got {model.names}"
        for name, weight, gradient in zip(model.names, model.weights, model.gradients, strict=True):
            same = weight.shape == gradient.shape
            assert same, f"{name}: expected one shape, the weight has {weight.shape}, its gradient {gradient.shape}"

    def test_the_same_seed_gives_the_same_weights(self) -> None:
        (one, _), (two, _), (other, _) = self._model(), self._model(), self._model(seed=2)
        for name, a, b in zip(one.names, one.values(), two.values(), strict=True):
            assert np.array_equal(a, b), f"{name}: the same seed gave other first weights"
        differ = any(not np.array_equal(a, b) for a, b in zip(one.values(), other.values(), strict=True))
        assert differ, "expected other first weights of another seed"

    def test_arrays_stay_the_same_objects(self) -> None:
        model, batch = self._model()
        before = [*map(id, model.weights), *map(id, model.gradients)]
        model.backward(batch.x, batch.y, 1.0)
        model.ready()
        after = [*map(id, model.weights), *map(id, model.gradients)]
        assert before == after, "a pass replaced arrays, expected values that change in place"

    def test_gradients_are_scaled(self) -> None:
        whole, half = (self._gradients(scale) for scale in (1.0, 0.5))
        for name, one, two in zip(self._model()[0].names, whole, half, strict=True):
            assert np.allclose(0.5 * one, two, atol=1e-6), f"{name}: scale=0.5 didn't halve the gradient"

    def test_a_step_against_the_gradient_lowers_the_loss(self) -> None:
        model, batch = self._model()
        model.backward(batch.x, batch.y, 1.0)
        before = model.loss()
        for weight, gradient in zip(model.weights, model.gradients, strict=True):
            weight[:] = weight - 0.01 * gradient
        model.backward(batch.x, batch.y, 1.0)
        assert model.loss() < before, f"expected a loss below {before:.4f} after a small step, got {model.loss():.4f}"

    def _model(self, seed: int = 1) -> tuple[Model, Batch]:
        task_options = plugins.options("task", {"name": "digits"})
        task: Task = plugins.target(task_options)(task_options)
        options = self.made()
        model: Model = plugins.target(options)(options).model(task, seed, None)
        return model, next(iter(task.batches(0, 1, 1)))

    def _gradients(self, scale: float) -> list[Any]:
        model, batch = self._model()
        model.backward(batch.x, batch.y, scale)
        model.ready()
        return [np.array(getattr(g, "asnumpy", lambda g=g: g)()) for g in model.gradients]
