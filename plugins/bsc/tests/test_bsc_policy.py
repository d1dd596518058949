"""Which tensors are sparse, and what is refused before anything starts."""

import pytest

pytest.importorskip("geomx_bsc", reason="the plugin isn't installed: pip install plugins/bsc")

from geomx_bsc import LIBRARY, Bsc

from geomx import plugins
from geomx.api import CodecChoice, ConfigError
from geomx.kv import compression_text


def chosen(options: Bsc, length: int = 5000, dtype: str = "float32", tier: str = "wan") -> CodecChoice:
    return options.policy().choose("w", length, dtype, tier, "up")


def test_large_tensors_are_sparse_between_parties_only():
    assert chosen(Bsc()).name == "bsc"
    assert chosen(Bsc()).params["ratio"] == 0.01
    assert chosen(Bsc(), tier="lan") == CodecChoice()


@pytest.mark.parametrize(("length", "name"), [(0, "identity"), (1000, "identity"), (1001, "bsc")])
def test_larger_than_the_bound_means_larger(length, name):
    assert chosen(Bsc(), length).name == name


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_all_floats_are_taken(dtype):
    assert chosen(Bsc(), dtype=dtype).name == "bsc"


def test_integers_are_refused_where_they_would_be_sparse():
    with pytest.raises(
        ConfigError, match="compression=bsc: w has int32, allowed are float32, float64, float16, bfloat16"
    ):
        chosen(Bsc(), dtype="int32")
    assert chosen(Bsc(), 10, dtype="int32") == CodecChoice()
    assert chosen(Bsc(), dtype="int32", tier="lan") == CodecChoice()


def test_the_seeds_name_for_the_ratio():
    text = compression_text({"type": "bsc", "threshold": 0.02}, {})
    assert '"ratio":0.02' in text
    assert text == compression_text({"type": "bsc", "ratio": 0.02}, {})
    with pytest.raises(ConfigError, match="two names of one option"):
        Bsc(ratio=0.5, threshold=0.02)


def test_the_bound_of_the_environment_counts_where_the_script_says_nothing():
    assert '"size_lower_bound":200' in compression_text({"type": "bsc"}, {"compression.size_lower_bound": "200"})


@pytest.mark.parametrize(
    ("option", "value"),
    [("ratio", 0), ("ratio", -0.1), ("ratio", 1.5), ("ratio", float("nan")), ("ratio", "much"), ("threshold", 0),
     ("threshold", 2), ("threshold", float("nan")), ("momentum", 1.0), ("value_bits", 4), ("size_lower_bound", -1),
     ("warmup_rounds", -1), ("warmup_ratio", 0)],
)  # fmt: skip
def test_what_is_not_allowed_is_refused_by_name_value_and_range(option, value):
    with pytest.raises(ConfigError, match=rf"compression\.{option}: .* given, allowed is "):
        plugins.options("compression", {"name": "bsc", option: value})


def test_the_published_behaviour_is_a_codec_of_its_own():
    assert chosen(Bsc(variant="original", ratio=0.02)) == CodecChoice("bsc-original", {"ratio": 0.02})


def test_the_library_is_inside_the_package():
    assert LIBRARY.exists()
