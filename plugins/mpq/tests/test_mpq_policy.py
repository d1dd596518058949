"""Which tensors travel how."""

import pytest

pytest.importorskip("geomx_mpq", reason="the plugin isn't installed: pip install plugins/mpq")

from geomx_mpq import Mpq

from geomx.api import ConfigError


def chosen(options: Mpq, length: int, dtype: str = "float32", tier: str = "wan") -> str:
    return options.policy().choose("w", length, dtype, tier, "down").name


@pytest.mark.parametrize(
    ("length", "tier", "name"),
    [(1000, "lan", "fp16"), (1000, "wan", "fp16"), (1001, "lan", "identity"), (1001, "wan", "bsc")],
)
def test_size_and_tier_decide(length, tier, name):
    assert chosen(Mpq(), length, tier=tier) == name


def test_the_options_of_both_codecs_reach_them():
    options = Mpq(threshold=0.05, value_bits=8, format="bfloat16", overflow="inf")
    choose = options.policy().choose
    assert choose("w", 5000, "float32", "wan", "up").params["ratio"] == 0.05
    assert choose("w", 5000, "float32", "wan", "up").params["value_bits"] == 8
    assert choose("w", 10, "float32", "lan", "up").name == "bf16"
    assert dict(choose("w", 10, "float32", "lan", "up").params) == {"overflow": "inf"}


def test_small_integers_and_halves_travel_as_they_are_large_integers_are_refused():
    assert chosen(Mpq(), 10, "int32") == "identity"
    assert chosen(Mpq(), 10, "float16") == "identity"
    assert chosen(Mpq(), 5000, "float16") == "bsc"
    with pytest.raises(ConfigError, match="has int64"):
        chosen(Mpq(), 5000, "int64")
