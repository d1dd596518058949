"""yourname keeps what every framework adapter must keep: the suite brings the tests."""

import numpy as np
from geomx_yourname.adapter import Linear

from geomx.testing.framework_suite import FrameworkSuite


class TestFramework(FrameworkSuite):
    choice = "framework=yourname"


def test_its_own_optimizer_steps_against_the_gradient():
    model = Linear(3, 2, seed=1, spread=0.0, rate=0.5)
    model.gradients[1][...] = [1.0, -2.0]
    model.update()
    np.testing.assert_array_equal(model.weights[1], [-0.5, 1.0])
