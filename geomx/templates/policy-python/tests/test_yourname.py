"""yourname keeps what every policy must keep: the suite brings the tests. What this one decides, is tested below."""

from geomx_yourname import Yourname

from geomx.testing.policy_suite import PolicySuite


class TestPolicy(PolicySuite):
    choice = "compression=yourname"


def test_large_tensors_are_halved_between_parties():
    policy = Yourname(min_length=100).policy()
    assert policy.choose("w", 99, "float32", "wan", "up").name == "identity"
    assert policy.choose("w", 100, "float32", "lan", "up").name == "identity"
    assert policy.choose("w", 100, "float32", "wan", "up").name == "fp16"
