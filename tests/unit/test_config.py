"""The typed configuration: what it allows, how it says so, and what becomes of it."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from geomx import config as conf
from geomx.config.whole import optimizer
from geomx.errors import ConfigError, Forbidden
from geomx.options import allowed_text, build, check, option, plain, shared


@dataclass
class Inner:
    ratio: float = option(0.5, "a share", above=0, at_most=1)


@dataclass
class Outer:
    inner: Inner = option(Inner, "nested")
    word: str = option("a", "a choice", one_of=("a", "b"))
    count: int = option(1, "a number", at_least=1)
    large: int = option(1, "a large one", at_least=1, at_most=1_000_000)
    maybe: float | None = option(None, "or nothing", above=0)
    table: dict[str, int] = option({}, "open")
    own: bool = option(True, "each node's own", scope="node")
    needed: str = field(default="x")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"word": "c"}, "it.word: 'c' given, allowed is one of a, b"),
        ({"count": 0}, "it.count: 0 given, allowed is a whole number at least 1"),
        ({"count": 1.5}, "it.count: 1.5 given, allowed is a whole number at least 1"),
        ({"count": True}, "it.count: True given, allowed is a whole number at least 1"),
        ({"large": 0}, "it.large: 0 given, allowed is a whole number at least 1 and at most 1,000,000"),
        ({"maybe": 0}, "it.maybe: 0 given, allowed is a number or null above 0"),
        ({"inner": {"ratio": math.nan}}, "it.inner.ratio: nan given, allowed is a number above 0 and at most 1"),
        ({"inner": {"ratio": math.inf}}, "it.inner.ratio: inf given, allowed is a number above 0 and at most 1"),
        ({"inner": {"rate": 1}}, "it.inner.rate: no such option; there are: ratio"),
        ({"cuont": 1}, "it.cuont: no such option; there are: inner, word"),
    ],
)
def test_a_wrong_value_is_named(given, sentence):
    with pytest.raises(ConfigError) as e:
        build(Outer, given, "it")
    assert str(e.value).startswith(sentence)


def test_what_is_allowed_is_taken():
    made = build(Outer, {"count": 3, "maybe": 2, "inner": {"ratio": 1}, "table": {"x": 1}}, "it")
    assert (made.count, made.maybe, made.inner.ratio, made.table) == (3, 2, 1, {"x": 1})


def test_defaults_are_not_shared_between_objects():
    first, second = Outer(), Outer()
    first.table["x"] = 1
    first.inner.ratio = 1
    assert (second.table, second.inner.ratio) == ({}, 0.5)


def test_an_option_that_came_in_unasked_is_refused():
    made = Outer()
    made.other = 1
    with pytest.raises(ConfigError, match=r"it\.other: no such option"):
        check(made, "it")


def test_a_rule_that_does_not_exist_is_the_authors_mistake():
    with pytest.raises(TypeError, match="no such rule: atleast"):
        option(1, "x", atleast=1)


def test_a_nodes_own_options_are_not_compared():
    assert "own" in plain(Outer())
    assert "own" not in shared(Outer())


def test_texts_of_types():
    assert allowed_text(Outer, "table") == "a mapping"
    assert allowed_text(Outer, "maybe") == "a number or null above 0"


def topology(given, **more):
    return conf.Hips(parties=given, **more)


def test_parties_by_number_list_and_name():
    assert [p.name for p in conf.parties(topology(3))] == ["party0", "party1", "party2"]
    by_list = conf.parties(topology([{"name": "a", "workers": 3, "host": "10.0.0.1"}, {"name": "b"}]))
    assert [(p.name, p.workers, p.host) for p in by_list] == [("a", 3, "10.0.0.1"), ("b", 2, "")]
    assert [(p.name, p.workers) for p in conf.parties(topology({"a": {"workers": 1}, "b": None}))] == [
        ("a", 1),
        ("b", 2),
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (0, "topology.parties: 0 given, allowed is a number from 1 or a list of {name, workers, host, reachable}"),
        (-1, "topology.parties: -1 given, allowed is a number from 1"),
        ([], "topology.parties: [] given, allowed is a number from 1"),
        ("two", "topology.parties: 'two' given"),
        ([{"name": "a"}, {"name": "a"}], "topology.parties: "),
        ([{"workers": 1}], "topology.parties.0: a value is required: name"),
        ([{"name": "a", "workers": 0}], "topology.parties.0.workers: 0 given, allowed is a whole number at least 1"),
        ([{"name": "a", "worker": 1}], "topology.parties.0.worker: no such option; there are: name, workers, host"),
        ([{"name": "central"}], "topology.parties: a party is called 'central'"),
        ([{"name": "a/b"}], "topology.parties: a party is called 'a/b', allowed are letters, digits, - and _"),
        ({"a": 3, "b": {}}, "topology.parties: "),
    ],
)
def test_wrong_parties_are_refused(given, sentence):
    with pytest.raises(ConfigError) as e:
        conf.parties(topology(given))
    assert str(e.value).startswith(sentence)


def test_hosts_of_unknown_parties_are_refused():
    with pytest.raises(ConfigError, match=r"topology\.hosts\.c: no such party; there are: central, party0, party1"):
        conf.parties(topology(2, hosts={"c": "10.0.0.3"}))


def test_a_host_is_found():
    made = topology([{"name": "a", "host": "h1"}, {"name": "b"}], hosts={"b": "h2"})
    assert [conf.host_of(made, p) for p in ("a", "b", "central")] == ["h1", "h2", ""]


def loaded(**given):
    return conf.load(given)


def judged(**given):
    made = loaded(**given)
    conf.judge(made)
    return made


def test_nothing_given_is_the_default_job():
    made = judged()
    assert made.task.name == "digits"
    assert list(made.scheduler) == ["fifo"]
    assert conf.parties(made.topology) == conf.parties(conf.Hips())


def test_a_config_comes_back_from_plain_data():
    made = judged(sync={"name": "mixed", "staleness": 3}, seed=7, topology={"name": "flat", "parties": 4})
    assert plain(conf.load(plain(made))) == plain(made)


def test_settings_are_what_nodes_compare():
    texts = conf.settings(judged())
    assert texts["compression"] == '{"name":"none"}'
    assert texts["sync"] == '{"name":"fsa"}'
    assert texts["transport"] == '{"name":"zmq"}'
    assert texts["scheduler"] == '{"fifo":{"credit_kb":0,"part_elements":262144}}'
    assert texts["deterministic"] == "false"
    assert all(isinstance(text, str) for text in texts.values())


def test_only_parameters_that_count_travel():
    assert optimizer(judged().sync.optimizer).keys() == {"name", "learning_rate", "beta1", "beta2", "epsilon", "wd"}
    sgd = judged(sync={"name": "fsa", "optimizer": {"name": "sgd", "momentum": 0.9}}).sync.optimizer
    assert optimizer(sgd) == {"name": "sgd", "learning_rate": 0.003, "momentum": 0.9, "wd": 0.0}
    other = judged(sync={"name": "fsa", "optimizer": {"name": "rmsprop", "extra": {"gamma1": 0.9}}}).sync.optimizer
    assert optimizer(other) == {"name": "rmsprop", "learning_rate": 0.003, "wd": 0.0, "gamma1": 0.9}
    worker = judged(sync={"name": "fsa", "optimizer": {"where": "worker"}}).sync.optimizer
    assert optimizer(worker) == "none"


@pytest.mark.parametrize(
    ("given", "kind", "sentence"),
    [
        ({"sync": {"name": "mixed", "optimizer": {"where": "worker"}}}, Forbidden, "sync=mixed does not go with"),
        (
            {"sync": {"name": "mixed"}, "deterministic": True},
            Forbidden,
            "deterministic=true does not go with sync=mixed",
        ),
        (
            {"sync": {"name": "fsa", "optimizer": {"extra": {"momentum": 1}}}},
            ConfigError,
            "sync.optimizer.extra.momentum",
        ),
        (
            {"launcher": {"name": "local", "exec_prefix": {"c": ["x"]}}},
            ConfigError,
            "launcher.exec_prefix.c: no such party",
        ),
        (
            {"task": {"name": "script", "script": "no.py"}},
            ConfigError,
            "task.script: 'no.py' given, there is no such file",
        ),
        ({"seed": -1}, ConfigError, "config.seed: -1 given, allowed is a whole number at least 0"),
        ({"task": {"name": "digits", "batch_size": 0}}, ConfigError, "task.batch_size: 0 given"),
        ({"task": {"name": "digitz"}}, ConfigError, "task=digitz is not installed; there are: charlm, cifar10, digits"),
        ({"trace": {"rounds": [5]}}, ConfigError, "trace.rounds: [5] given, allowed is [first, last]"),
        ({"trace": {"rounds": [5, 4]}}, ConfigError, "trace.rounds: [5, 4] given"),
        ({"topology": {"name": "hips", "workers": 0}}, ConfigError, "topology.workers: 0 given"),
    ],
)
def test_what_can_not_run_is_refused(given, kind, sentence):
    with pytest.raises(kind) as e:
        judged(**given)
    assert str(e.value).startswith(sentence)


@dataclass
class Picky:
    forbids: ClassVar[dict[str, str]] = {"topology=flat": "there are no parties"}
    needs: ClassVar[dict[str, str]] = {"sync=fsa": "rounds are shared"}
    fills: ClassVar[tuple[str, ...]] = ("overlay",)


@dataclass
class Greedy:
    part_elements: int = 5


def with_scheduler(**options):
    made = loaded()
    made.scheduler = dict(options)
    return made


def test_plugins_say_what_they_do_not_go_with():
    made = with_scheduler(picky=Picky())
    conf.judge(made)
    made.topology = loaded(topology={"name": "flat"}).topology
    with pytest.raises(Forbidden, match="scheduler=picky does not go with topology=flat: there are no parties"):
        conf.judge(made)


def test_plugins_say_what_they_need():
    made = with_scheduler(picky=Picky())
    made.sync = loaded(sync={"name": "mixed"}).sync
    with pytest.raises(Forbidden, match="scheduler=picky needs sync=fsa: rounds are shared"):
        conf.judge(made)


def test_deterministic_goes_without_overlays():
    made = with_scheduler(picky=Picky())
    made.deterministic = True
    with pytest.raises(Forbidden, match="deterministic=true does not go with scheduler=picky"):
        conf.judge(made)


def test_a_place_has_one_occupant():
    with pytest.raises(Forbidden, match="scheduler=a does not go with scheduler=b: both are the scheduler"):
        conf.judge(with_scheduler(a=Greedy(), b=Greedy()))
