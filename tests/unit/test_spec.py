"""Node specs travel as JSON, and whatever isn't one is refused in a sentence."""

import dataclasses
import json

import pytest

from geomx.errors import ConfigError
from geomx.spec import DomainSpec, NodeSpec, from_json, setting

LAN = DomainSpec(scheduler_host="10.0.0.1", scheduler_port=9000, num_servers=1, num_members=2)
WORKER = NodeSpec(role="worker", name="a.worker1", party="a", rank=1, lan=LAN, settings={"sync": '{"name":"fsa"}'})


def test_comes_back_the_same():
    assert from_json(WORKER.to_json()) == WORKER


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"role": "wroker"}, "role: 'wroker' given, allowed is one of scheduler, local_server, global_server, worker"),
        ({"rank": "1"}, "node spec: rank: '1' given, allowed is a whole number"),
        ({"rank": True}, "node spec: rank: True given, allowed is a whole number"),
        ({"join_s": None}, "node spec: join_s: None given, allowed is a number"),
        ({"settings": []}, "node spec: settings: [] given, allowed is an object"),
        ({"lan": {"scheduler_host": "h"}}, "node spec: lan: a value is required: num_members, num_servers"),
        ({"lan": 3}, "node spec: lan: an object is needed, 3 given"),
        ({"lan": None}, "worker: neither a LAN nor a WAN domain given, a node needs one"),
        ({"rolle": 1}, "node spec: no such field: rolle; there are: role, name"),
    ],
)
def test_a_wrong_field_is_named(change, sentence):
    given = {**dataclasses.asdict(WORKER), **change}
    with pytest.raises(ConfigError) as e:
        from_json(json.dumps(given))
    assert str(e.value).startswith(sentence)


@pytest.mark.parametrize("text", ["", "[", "[]", "3", '"worker"', "{}"])
def test_what_is_no_spec_is_refused(text):
    with pytest.raises(ConfigError, match="node spec"):
        from_json(text)


def test_a_node_has_a_title():
    assert WORKER.title == "worker 1 of party a"
    server = dataclasses.replace(WORKER, role="local_server", rank=0)
    assert server.title == "local server of party a"
    assert NodeSpec(role="scheduler", wan=LAN, party="central").title == "global scheduler"
    assert NodeSpec(role="global_server", wan=LAN, lan=LAN, rank=1).title == "global server 1"
    assert dataclasses.replace(WORKER, is_master=True, is_central=True).title == "master worker"


def test_equal_settings_are_equal_texts():
    assert setting({"b": 1, "a": [0.5, None]}) == setting({"a": [0.5, None], "b": 1}) == '{"a":[0.5,null],"b":1}'
    assert setting("none") == "none"
