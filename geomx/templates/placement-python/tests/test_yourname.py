"""yourname keeps what every placement must keep: the suite brings the tests. What this one decides, is tested below."""

from geomx_yourname import Yourname, place

from geomx.api import Tensor
from geomx.testing.placement_suite import PlacementSuite


class TestPlacement(PlacementSuite):
    choice = "topology=yourname"


def test_tensors_take_turns_and_large_ones_are_spread():
    tensors = [Tensor("a", 10, 40.0), Tensor("b", 30, 120.0), Tensor("c", 5, 20.0)]
    found = place(Yourname(bigarray_bound=20), tensors, [7.0, 0.0, 9.0])
    assert [[s.server for s in shards] for shards in found] == [[1], [0, 1, 2], [0]]
