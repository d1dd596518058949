"""Which tensors travel in 16 bits."""

import pytest

pytest.importorskip("geomx_fp16", reason="the plugin isn't installed: pip install plugins/fp16")

from geomx_fp16 import LIBRARY, Fp16

from geomx.api import CodecChoice


def chosen(options: Fp16, dtype: str = "float32", tier: str = "wan") -> CodecChoice:
    return options.policy().choose("w", 10, dtype, tier, "up")


def test_wide_values_are_halved():
    assert chosen(Fp16()) == CodecChoice("fp16", {"overflow": "saturate"})
    assert chosen(Fp16(), "float64").name == "fp16"
    assert chosen(Fp16(format="bfloat16", overflow="inf")) == CodecChoice("bf16", {"overflow": "inf"})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "uint8"])
def test_others_travel_as_they_are(dtype):
    assert chosen(Fp16(), dtype) == CodecChoice()


def test_a_tier_can_be_left_out():
    assert chosen(Fp16(lan=False), tier="lan").name == "identity"
    assert chosen(Fp16(lan=False), tier="wan").name == "fp16"


def test_the_library_is_inside_the_package():
    assert LIBRARY.exists()
