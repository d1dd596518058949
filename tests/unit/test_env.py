"""The seed's environment as a node spec."""

import pytest

from geomx import connect, env
from geomx.errors import ConfigError
from geomx.spec import DomainSpec

LAN = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "9093", "DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": "2"}
WAN = {"DMLC_PS_GLOBAL_ROOT_URI": "10.0.0.1", "DMLC_PS_GLOBAL_ROOT_PORT": "9092", "DMLC_NUM_GLOBAL_SERVER": "1",
       "DMLC_NUM_GLOBAL_WORKER": "2"}  # fmt: skip
WORKER = {"DMLC_ROLE": "worker", **LAN, "DMLC_NUM_ALL_WORKER": "4"}
LOCAL_SERVER = {"DMLC_ROLE": "server", **LAN, **WAN}
GLOBAL_SERVER = {"DMLC_ROLE": "server", "DMLC_ROLE_GLOBAL": "global_server", **LAN, **WAN}
A_LAN = DomainSpec(scheduler_host="127.0.0.1", scheduler_port=9093, num_servers=1, num_members=2)
A_WAN = DomainSpec(scheduler_host="10.0.0.1", scheduler_port=9092, num_servers=1, num_members=2)


def spec(environ, **changes):
    changed = {**environ, **changes}
    return env.node_spec({k: v for k, v in changed.items() if v is not None}, installed=lambda group, name: True)


@pytest.mark.parametrize(
    ("environ", "role", "lan", "wan", "flags"),
    [
        ({"DMLC_ROLE_GLOBAL": "global_scheduler", **WAN}, "scheduler", None, A_WAN, {"is_central"}),
        ({"DMLC_ROLE": "scheduler", **LAN}, "scheduler", A_LAN, None, set()),
        (LOCAL_SERVER, "local_server", A_LAN, A_WAN, set()),
        (GLOBAL_SERVER, "global_server", A_LAN, A_WAN, {"is_central"}),
        (GLOBAL_SERVER | {"DMLC_ENABLE_CENTRAL_WORKER": "1"}, "global_server", A_LAN, A_WAN,
         {"is_central", "central_trains"}),
        (WORKER, "worker", A_LAN, None, set()),
        (WORKER | {"DMLC_ROLE_MASTER_WORKER": "1"}, "worker", A_LAN, None, {"is_central", "is_master"}),
    ],
)  # fmt: skip
def test_the_six_roles(environ, role, lan, wan, flags):
    found = spec(environ)
    assert (found.role, found.lan, found.wan) == (role, lan, wan)
    assert {f for f in ("is_central", "is_master", "central_trains") if getattr(found, f)} == flags


def test_all_workers_of_the_world_are_a_workers_business():
    assert spec(WORKER).world == 4
    assert spec(WORKER, DMLC_NUM_ALL_WORKER=None).world == 0
    assert spec(GLOBAL_SERVER, DMLC_NUM_ALL_WORKER="4").world == 0


@pytest.mark.parametrize(
    ("environ", "changes", "sentence"),
    [
        (WORKER, {"DMLC_ROLE": "wroker"}, "DMLC_ROLE: 'wroker' given, allowed is one of scheduler, server, worker"),
        (WORKER, {"DMLC_ROLE": None}, "DMLC_ROLE: not set, allowed is one of scheduler, server, worker; a"),
        (GLOBAL_SERVER, {"DMLC_ROLE_GLOBAL": "global"}, "DMLC_ROLE_GLOBAL: 'global' given, allowed is one of gl"),
        (GLOBAL_SERVER, {"DMLC_ROLE": "worker"}, "DMLC_ROLE: worker given together with DMLC_ROLE_GLOBAL=glo"),
        (GLOBAL_SERVER, {"DMLC_ROLE": None}, "DMLC_ROLE: nothing given together with DMLC_ROLE_GLOBAL=global_server"),
        (LOCAL_SERVER, {"DMLC_ROLE_MASTER_WORKER": "1"}, "DMLC_ROLE_MASTER_WORKER: 1 given on a server, allowed only"),
        (WORKER, {"DMLC_PS_ROOT_URI": None}, "DMLC_PS_ROOT_URI: not set, a worker needs it; allowed is a host"),
        (WORKER, {"DMLC_PS_ROOT_URI": "my host"}, "DMLC_PS_ROOT_URI: 'my host' given, allowed is a host name or an"),
        (WORKER, {"DMLC_PS_ROOT_PORT": "90933"}, "DMLC_PS_ROOT_PORT: '90933' given, allowed is a whole number from"),
        (WORKER, {"DMLC_PS_ROOT_PORT": "http"}, "DMLC_PS_ROOT_PORT: 'http' given, allowed is a whole number from"),
        (WORKER, {"DMLC_NUM_WORKER": "0"}, "DMLC_NUM_WORKER: '0' given, allowed is a whole number from 1"),
        (WORKER, {"DMLC_NUM_WORKER": "2.5"}, "DMLC_NUM_WORKER: '2.5' given, allowed is a whole number from 1"),
        (WORKER, {"DMLC_NUM_WORKER": ""}, "DMLC_NUM_WORKER: not set, a worker needs it"),
        (LOCAL_SERVER, {"DMLC_NUM_SERVER": "2"}, "DMLC_NUM_SERVER: 2 given on a local server, allowed is 1"),
        (GLOBAL_SERVER, {"DMLC_NUM_GLOBAL_SERVER": "2"}, "DMLC_NUM_SERVER: 1 given on a global server but DMLC"),
        (LOCAL_SERVER, {"DMLC_PS_GLOBAL_ROOT_URI": None}, "DMLC_PS_GLOBAL_ROOT_URI: not set, a node between"),
        (WORKER, {"DMLC_ENABLE_CENTRAL_WORKER": "yes"}, "DMLC_ENABLE_CENTRAL_WORKER: 'yes' given, allowed is 0 or 1"),
        (WORKER, {"ENABLE_DGT": "4"}, "ENABLE_DGT: '4' given, allowed is a whole number from 0 to 3"),
        (WORKER, {"DMLC_K": "1.5"}, "DMLC_K: '1.5' given, allowed is a number above 0 and at most 1"),
        (WORKER, {"DMLC_K": "nan"}, "DMLC_K: 'nan' given, allowed is"),
        (WORKER, {"MXNET_KVSTORE_SIZE_LOWER_BOUND": "1e400"}, "MXNET_KVSTORE_SIZE_LOWER_BOUND: '1e400' given"),
        (WORKER, {"GEOMX_DEATH_S": "inf"}, "GEOMX_DEATH_S: 'inf' given, allowed is a number of seconds above 0"),
        (WORKER, {"PS_DROP_MSG": "10"}, "PS_DROP_MSG: 10 given, allowed is 0: loss belongs to the network"),
        (WORKER, {"DMLC_INTERFACE": "nosuchcard"}, "DMLC_INTERFACE: 'nosuchcard' given, allowed is a card of this"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_by_name(environ, changes, sentence):
    with pytest.raises(ConfigError) as refused:
        spec(environ, **changes)
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({}, {}),
        ({"MXNET_KVSTORE_SIZE_LOWER_BOUND": "1e3"}, {"compression.size_lower_bound": "1000"}),
        ({"MXNET_KVSTORE_BIGARRAY_BOUND": "5000"}, {"placement.bigarray_bound": "5000"}),
        ({"ENABLE_DGT": "2", "DMLC_UDP_CHANNEL_NUM": "3", "DMLC_K": "0.8", "ADAPTIVE_K_FLAG": "1"},
         {"transport": '{"name":"dgt"}', "transport.mode": "tcp", "transport.channels": "3", "transport.k": "0.8",
          "transport.adaptive_k": "true"}),
        ({"ENABLE_DGT": "3", "DGT_CONTRI_ALPHA": "0.5", "DMLC_K_MIN": "0.2", "DGT_BLOCK_SIZE": "4096"},
         {"transport": '{"name":"dgt"}', "transport.mode": "tcp4bit", "transport.alpha": "0.5",
          "transport.k_min": "0.2", "transport.block_bytes": "4096"}),
        ({"ENABLE_DGT": "1", "DGT_CONTRIBUTION_ALPHA": "0.4"},
         {"transport": '{"name":"dgt"}', "transport.mode": "udp", "transport.alpha": "0.4"}),
        ({"ENABLE_P3": "1"}, {"scheduler.p3": "true"}),
        ({"DMLC_NUM_GLOBAL_SERVER": "3"}, {"placement.name": "multigps"}),
        ({"ENABLE_INTER_TS": "1", "MAX_GREED_RATE_TS": "0.9"},
         {"scheduler.tsengine": "true", "scheduler.tsengine.inter": "true",
          "scheduler.tsengine.max_greed_rate": "0.9"}),
        ({"MXNET_KVSTORE_USE_HFA": "1", "MXNET_KVSTORE_HFA_K1": "20"}, {"sync": '{"name":"hfa"}', "sync.k1": "20"}),
        ({"GEOMX_DETERMINISTIC": "1"}, {"deterministic": "true"}),
        ({"DMLC_K": "0.8", "MAX_GREED_RATE_TS": "0.5", "MXNET_KVSTORE_HFA_K1": "2", "ENABLE_INTRA_TS": "0"}, {}),
        ({"GEOMX_RANK": "3", "PS_VERBOSE": "1", "DMLC_USE_KUBERNETES": "0"}, {}),
    ],
)  # fmt: skip
def test_a_node_brings_only_what_is_set_on_it(changes, settings):
    assert spec(LOCAL_SERVER, **changes).settings == settings


@pytest.mark.parametrize(
    ("variable", "plugin"),
    [("ENABLE_DGT", "transport=dgt"), ("ENABLE_P3", "scheduler=p3"), ("ENABLE_INTER_TS", "scheduler=tsengine"),
     ("ENABLE_INTRA_TS", "scheduler=tsengine"), ("MXNET_KVSTORE_USE_HFA", "sync=hfa")],
)  # fmt: skip
def test_a_technique_that_is_not_installed_is_refused_by_its_variable(variable, plugin):
    with pytest.raises(ConfigError, match=f"^{variable}: asks for {plugin}, a plugin that is not installed"):
        env.node_spec(LOCAL_SERVER | {variable: "1"}, installed=lambda group, name: False)
    assert env.node_spec(LOCAL_SERVER | {variable: "0"}, installed=lambda group, name: False).role == "local_server"


def test_own_variables_and_addresses():
    found = spec(WORKER, GEOMX_RANK="1", GEOMX_TOKEN="secret", GEOMX_DEATH_S="5", GEOMX_PARTY="a", PORT="4000",
                 DMLC_NODE_HOST="10.0.0.7", DMLC_LOCAL="0", GEOMX_SEED="7")  # fmt: skip
    assert (found.rank, found.token, found.death_s, found.party, found.port) == (1, "secret", 5.0, "a", 4000)
    assert (found.host, found.local, found.seed) == ("10.0.0.7", False, 7)
    assert spec(WORKER, DMLC_INTERFACE="lo").host == "127.0.0.1"
    assert spec(WORKER, PS_HEARTBEAT_TIMEOUT="20").death_s == 20


def test_notes_name_what_does_nothing_and_what_is_misspelt():
    assert env.notes(WORKER) == []
    assert env.notes({"DMLC_K": "0.8", "ENABLE_DGT": "0"}) == ["DMLC_K has no effect here: ENABLE_DGT is not set"]
    assert env.notes({"DMLC_K": "0.8", "ENABLE_DGT": "2"}) == []
    found = env.notes({"PS_RESEND": "1", "DMLC_NUM_WORKERS": "2", "GEOMX_TOKN": "x", "ENABLE_NOTHING_LIKE_IT": "1"})
    assert found == [
        "PS_RESEND has no effect: nothing is lost on a reliable transport",
        "DMLC_NUM_WORKERS is not a variable of this project; did you mean DMLC_NUM_WORKER?",
        "GEOMX_TOKN is not a variable of this project; did you mean GEOMX_TOKEN?",
    ]


def test_a_store_that_says_async_asks_for_mixed_sync():
    assert connect.spec_of(WORKER, "dist_sync").settings == {}
    assert connect.spec_of(WORKER, "dist_async").settings == {"sync": '{"name":"mixed"}'}
    with pytest.raises(ConfigError, match="this process is to be a local server, which runs no script"):
        connect.spec_of(LOCAL_SERVER)


def test_a_spec_file_comes_before_the_variables(tmp_path):
    import dataclasses

    path = tmp_path / "spec.json"
    given = dataclasses.replace(spec(WORKER), settings={"sync": '{"name":"fsa"}'})
    path.write_text(given.to_json())
    assert connect.spec_of({"GEOMX_SPEC": str(path), "DMLC_ROLE": "server"}) == given
    with pytest.raises(ConfigError, match="the script asks for dist_async, the configuration says sync=fsa"):
        connect.spec_of({"GEOMX_SPEC": str(path)}, "dist_async")
    with pytest.raises(ConfigError, match="GEOMX_SPEC: .*missing.json can't be read: No such file"):
        connect.spec_of({"GEOMX_SPEC": str(tmp_path / "missing.json")})
