"""launcher=netns: one real run between network namespaces, and nothing left of it; skipped where there can be none."""

import json
import socket
import time

import pytest

from geomx.config.network import Network
from geomx.config.topology import Hips
from geomx.errors import ConfigError
from geomx.wan.plan import resolve
from geomx.wan.probe import _socket
from geomx.wan.router import Router, address, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no network namespaces here: {missing()}")
NETWORK = ["network.rate_mbit=200", "network.delay_ms=5", "launcher=netns", "launcher.congestion=cubic"]


def test_a_run_between_namespaces_finishes_and_leaves_nothing(begin):
    run = begin(*NETWORK, "framework=numpy", "topology.workers=1", "task.max_rounds=4", real=True)
    ended = run.wait()
    assert ended.code == 0, ended.output
    told = ended.summary["network"]
    assert (told["engine"], told["congestion"]) == ("netns", "cubic")
    assert told["self_test"][0]["delay_ms"][1] >= 5
    assert 0 < told["router_cpu_share"] < 1
    sent = ended.summary["traffic"]["wan"]
    passed = told["links"]["central"]
    assert passed["up_bytes"] > sent["down_bytes"] and passed["down_bytes"] > sent["up_bytes"]
    assert "5 ms one way" in ended.output


def test_the_ledger_agrees_with_what_the_interfaces_count(begin):
    run = begin("network.rate_mbit=200", "network.delay_ms=2", "launcher=netns", "topology.workers=1",
                "compression=fp16", "task.pixels=28", "task.max_rounds=12", real=True)  # fmt: skip
    ended = run.wait()
    assert ended.code == 0, ended.output
    found = ended.summary["network"]["ledger"]
    assert set(found) == {"party0", "party1", "central"}
    halves = 12 * 2 * 178_762  # what fp16 leaves of the model in that many rounds
    assert found["party0"]["ledger_bytes"] > halves and found["central"]["ledger_bytes"] > 2 * halves
    for row in found.values():
        assert abs(row["off"]) < 0.02, found
    assert "agree within" in ended.output


def test_namespaces_and_router_are_gone_when_the_launcher_is_killed(begin):
    run = begin(*NETWORK, "framework=numpy", "topology.workers=1", "task.epochs=10000", real=True)
    run.until(run.is_training)
    router = next(pid for pid in children(run.process.pid) if "geomx-router" in name(pid))
    run.kill()
    while name(router):
        time.sleep(0.05)


def test_datagrams_cross_the_router_and_one_between_parties_meets_its_queue():
    wan = resolve(Network(rate_mbit=8, delay_ms=10), Hips(parties=2))
    router = Router(wan, "", 1)
    try:
        with _socket(router, wan, "party0") as near, _socket(router, wan, "party1") as far:
            assert far.getsockname()[0] == address(wan, "party1") == "10.9.0.2"
            near.connect(far.getsockname())
            for i in range(250):  # 350 kB, which take 0.35 s, where 30 kB fit
                near.send(bytes([i]) * 1400)
            got = []
            far.settimeout(2)
            with pytest.raises(socket.timeout):
                while True:
                    got.append(far.recv(2000)[0])
            assert got == sorted(got) and 10 < len(got) < 250
        counted = router.counters()["links"]
        assert counted[0]["dropped"] == 250 - len(got)
        assert router.interface_bytes("party1")[1] == len(got) * 1428 == counted[1]["down_bytes"]
        json.dumps(router.told())
    finally:
        router.close()


def test_an_unknown_congestion_control_is_told_with_those_that_there_are():
    wan = resolve(Network(), Hips(parties=1))
    with pytest.raises(ConfigError, match=r"congestion control warp is not to be had here; there are: .*reno"):
        Router(wan, "warp", 1)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def name(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""
