"""Settings that come apart become one configuration."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from geomx import plugins
from geomx.agreed import Agreed, united
from geomx.api import Compression, option
from geomx.config import explicit, load
from geomx.errors import ConfigError
from geomx.kv import compression_text


@dataclass
class Dgt:
    k: float = option(0.5, "share of the reliable channel", above=0, at_most=1)
    protocol: str = option("tcp", "of the other channels", one_of=("udp", "tcp", "tcp4bit"))
    lossy: ClassVar[bool] = True


@dataclass
class Relays:
    greed: float = option(0.9, "how much is tried", at_least=0)
    inter: bool = option(False, "between parties")
    fills: ClassVar[tuple[str, ...]] = ("overlay",)


@dataclass
class Sparse(Compression):
    threshold: float = option(0.01, "share that is sent", above=0)
    size_lower_bound: int = option(1000, "smaller tensors travel as they are", at_least=0)


@pytest.fixture(autouse=True)
def _toys(monkeypatch):
    """Techniques that the seed's variables ask for, as plugins."""
    toys = {("transport", "dgt"): Dgt, ("scheduler", "tsengine"): Relays, ("compression", "sparse"): Sparse}
    real = plugins.load
    monkeypatch.setattr(plugins, "load", lambda group, name: toys.get((group, name)) or real(group, name))


def test_a_choice_and_its_options_come_from_different_nodes():
    config = united(load({}), {"transport": '{"name":"dgt"}', "transport.k": "0.8", "transport.protocol": "udp"})
    assert (config.transport.name, config.transport.k, config.transport.protocol) == ("dgt", 0.8, "udp")
    assert config.compression.name == "none"


def test_in_any_order_and_one_by_one():
    agreed = Agreed(load({}))
    for what, value in [("transport.k", "0.8"), ("optimizer", "none"), ("transport", '{"name":"dgt"}')]:
        agreed.take(what, value)
    assert agreed.config.transport.k == 0.8


def test_options_of_a_technique_that_nobody_chose_change_nothing():
    settings = {"transport.k": "0.8", "scheduler.tsengine.greed": "0.5", "sync.k1": "20"}
    assert united(load({}), settings) == load({})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"transport": '{"name":"dgt"}', "transport.k": "1.5"}, "transport.k: 1.5 given, allowed is a number above 0"),
        ({"transport": '{"name":"dgt","k":0.3}', "transport.k": "0.8"}, "transport.k: 0.8 was set, but transport asks"),
        ({"transport": '{"name":"nothing"}'}, "transport=nothing is not installed"),
        ({"compression": "fp16"}, "compression: 'fp16' given, allowed is {\"name\": a plugin"),
    ],
)
def test_what_is_not_allowed_is_named(settings, sentence):
    with pytest.raises(ConfigError) as refused:
        united(load({}), settings)
    assert str(refused.value).startswith(sentence)


def test_a_scheduler_is_added_and_given_its_options():
    settings = {"scheduler.tsengine": "true", "scheduler.tsengine.greed": "0.5", "scheduler.tsengine.inter": "true"}
    config = united(load({}), settings)
    assert list(config.scheduler) == ["tsengine"]
    assert config.scheduler["tsengine"] == Relays(greed=0.5, inter=True)
    whole = united(load({}), {"scheduler": '{"fifo":{"part_elements":5}}'})
    assert whole.scheduler["fifo"].part_elements == 5


def test_placement_sync_and_determinism():
    config = united(load({}), {"placement.bigarray_bound": "5000", "sync": '{"name":"mixed"}', "deterministic": "true"})
    assert config.topology.bigarray_bound == 5000
    assert (config.sync.name, config.sync.staleness) == ("mixed", 8)
    assert config.deterministic is True


def test_what_a_node_has_for_itself_stays():
    own = load({"transport": {"name": "zmq", "local": False}})
    assert united(own, {"transport": '{"name":"zmq"}'}).transport.local is False


def test_a_scripts_compression_takes_what_was_set_elsewhere():
    settings = {"compression.size_lower_bound": "50"}
    text = '{"name":"sparse","size_lower_bound":50,"threshold":0.1}'
    assert compression_text({"type": "sparse", "threshold": 0.1}, settings) == text
    assert compression_text({"type": "none"}, settings) == '{"name":"none"}'
    with pytest.raises(ConfigError, match="size_lower_bound is 70, but 50 was set when the run began"):
        compression_text({"type": "sparse", "size_lower_bound": 70}, settings)
    assert united(load({}), {**settings, "compression": text}).compression.size_lower_bound == 50


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, set()),
        ({"compression": {"name": "sparse"}}, {"compression"}),
        ({"sync": {"name": "mixed"}}, {"sync"}),
        ({"sync": {"name": "fsa", "optimizer": {"learning_rate": 0.1}}}, {"optimizer"}),
        ({"topology": {"name": "hips", "bigarray_bound": 7}}, {"placement"}),
    ],
)
def test_a_script_is_left_what_the_command_does_not_say(given, names):
    assert explicit(load(given)).keys() == names
