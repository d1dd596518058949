"""What Hydra composes: every choice of every group, and a sentence for every mistake."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from geomx import app, plugins, run

run.install()
OFFERED = {group for group, _ in plugins.offers()} - {"bench"}  # a plugin's benchmarks are nothing to configure
GROUPS = sorted(OFFERED | {d.name for d in plugins.CONF.iterdir() if d.is_dir()})
EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDED = {
    "task=script": [f"task.script={__file__}"],
    "network=mobile": ["network.loss=0"],  # loss needs launcher=netns
    "network=trace": [f"network.trace={EXAMPLES / 'wan_trace.txt'}"],
}


@pytest.fixture(scope="module", autouse=True)
def _hydra():
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(plugins.CONF), version_base="1.3"):
        yield
    GlobalHydra.instance().clear()


@pytest.mark.parametrize("choice", [f"{g}={c}" for g in GROUPS for c in plugins.choices(g)])
def test_every_choice_composes(choice):
    app.typed(compose("config", [choice, *NEEDED.get(choice, [])]))


def test_all_groups_of_the_design_are_there():
    assert set(GROUPS) >= {
        "topology", "compression", "transport", "scheduler", "sync", "network", "launcher", "framework", "task",
        "tracking", "experiment",
    }  # fmt: skip


def test_mappings_take_new_keys():
    words = [
        "launcher.exec_prefix={party0: [ip, netns, exec, a]}",
        "topology.hosts.party1=10.0.0.2",
        "sync.optimizer.name=rmsprop",
        "sync.optimizer.extra.gamma1=0.9",
    ]
    config = app.typed(compose("config", words))
    assert config.launcher.exec_prefix == {"party0": ["ip", "netns", "exec", "a"]}
    assert config.topology.hosts == {"party1": "10.0.0.2"}
    assert config.sync.optimizer.extra == {"gamma1": 0.9}


def test_parties_written_out_can_be_overridden():
    config = app.typed(compose("config", ["topology.parties=[{name: a, workers: 1}]", "topology.parties.0.workers=7"]))
    assert config.topology.parties[0] == {"name": "a", "workers": 7}


MISTAKES = [
    (
        ["task=digitz"],
        "task=digitz is not installed; there are: charlm, cifar10, digits, fashion_mnist, mnist, script, synthetic",
    ),
    (["scheduler=fifo+nothing"], "scheduler=nothing is not installed; there are: fifo"),
    (
        ["launcher=joblib"],
        "launcher=joblib is not installed; there are: local, netns; Hydra's own is hydra/launcher=joblib",
    ),
    (["topology.worker=3"], "topology=hips has no option worker; did you mean workers?"),
    (["+task.foo=3"], "task.foo: no such option"),
    (["sed=1"], "sed: no such option; did you mean seed?"),
    (["task.batch_size=abc"], "task.batch_size: 'abc' given, allowed is a whole number at least 1"),
    (["task.batch_size=0"], "task.batch_size: 0 given, allowed is a whole number at least 1"),
    (["task.split=random"], "task.split: 'random' given, allowed is one of iid, class"),
    (["sync.optimizer.learning_rate=nan"], "sync.optimizer.learning_rate: nan given, allowed is a number above 0"),
    (["sync.optimizer.momentum=1"], "sync.optimizer.momentum: 1.0 given, allowed is a number at least 0 and below 1"),
    (["sync.optimizer.lr=1"], "sync.optimizer.lr: no such option; "),
    (["timeouts.join_s=-1"], "timeouts.join_s: -1.0 given, allowed is a number above 0"),
    (["target.accuracy=1.5"], "target.accuracy: 1.5 given, allowed is a number or null above 0 and at most 1"),
    (["topology.parties=0"], "topology.parties: 0 given, allowed is a number from 1 or a list"),
    (["topology.parties=[{name: a, wokers: 1}]"], "topology.parties.0.wokers: no such option; there are: name"),
    (["topology.port=70000"], "topology.port: 70000 given, allowed is a whole number at least 0 and at most 65,535"),
    (["topology=flat", "topology.central_workers=1"], "topology=flat has no option central_workers"),
    (["seed=1.5"], "seed: '1.5' given, allowed is a whole number at least 0"),
    (["deterministic=maybe"], "deterministic: 'maybe' given, allowed is true or false"),
    (["on_failure=continue"], "on_failure: 'continue' given, allowed is one of stop"),
    (["task=script"], "task.script: a value is required"),
    (["task=script", "task.script=none.py"], "task.script: 'none.py' given, there is no such file"),
    (["experiment=none2"], "experiment=none2 is not installed; there are: none"),
    (["network=trace"], "network=trace: a file is required: network.trace=FILE"),
    (["network=mobile"], "network=mobile with loss does not go with launcher=local"),
    (["network.access.x.rate_mbit=1"], "network.access.x: no such party; there are: party0, party1, central"),
    (["network=lam"], "network=lam is not installed; there are: continental, lan, metro, mobile, none"),
    (["compression.name=x"], "compression.name: can't be set; another choice is made with compression=..."),
    (["+compression.name=x"], "Could not append to config. An item is already at 'compression.name'."),
    (
        ["topology.parties=[{name: a}]", "topology.parties.0.workers=7"],
        "topology.parties[0].workers: isn't written out",
    ),
]


@pytest.mark.parametrize(("words", "sentence"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_a_mistake_is_told_in_a_sentence(words, sentence):
    from geomx.sentences import sentence as told

    with pytest.raises(Exception) as e:  # noqa: PT011 - of Hydra, OmegaConf or geomx; the sentence counts
        app.typed(compose("config", words))
    assert told(e.value).startswith(sentence)
    assert "\n" not in told(e.value)
