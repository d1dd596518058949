"""Whole deployments started by hand with the seed's variables: its loops train, and everybody ends well."""

import importlib.util
import re

import by_hand
import pytest
import seed_page
from by_hand import EXEC, ROOT

needs_mxnet = pytest.mark.skipif(importlib.util.find_spec("mxnet") is None, reason="MXNet isn't installed")

DGT = {"ENABLE_DGT": "1", "DMLC_UDP_CHANNEL_NUM": "3", "DMLC_K": "0.8", "ADAPTIVE_K_FLAG": "1"}
ORDER = {"ENABLE_INTER_TS": "1", "ENABLE_INTRA_TS": "1", "MAX_GREED_RATE_TS": "0.9", "ENABLE_P3": "1"}


@pytest.fixture
def deploy(tmp_path):
    yield from by_hand.deployments(tmp_path)


def accuracies(deployment, names):
    return {name: float(re.findall(r"(?:Test Acc|accuracy) ([\d.]+)", deployment.said(name))[-1]) for name in names}


def hashes(deployment, names):
    return {re.findall(r"weights (\w+)", deployment.said(name))[-1] for name in names}


@needs_mxnet
def test_the_seeds_twelve_nodes_train_the_cnn(deploy):
    deployment = deploy()
    deployment.start_services()
    example = (*EXEC, ROOT / "examples" / "cnn.py", "--cpu", "-ep", 4, "-lr", 0.003, "--data", "digits")
    deployment.start("master", *example)
    for slice_idx, name in enumerate(deployment.workers):
        deployment.start(name, *example, "-ds", slice_idx)
    assert len(deployment.processes) == 12
    codes = deployment.wait()
    assert set(codes.values()) == {0}, deployment.story()
    assert min(accuracies(deployment, deployment.workers).values()) > 0.8


@needs_mxnet
@pytest.mark.parametrize(
    ("loop", "plugins", "variables", "agreed"),
    [
        ("bsc", ["tsengine", "p3"], ORDER, ["scheduler.p3=true", "scheduler.tsengine.inter=true",
                                            "scheduler.tsengine.intra=true", "placement.bigarray_bound=5000"]),
        ("fp16", ["dgt"], DGT, ['transport={"name":"dgt"}', "transport.channels=3", "transport.adaptive_k=true"]),
    ],
)  # fmt: skip
def test_a_printed_loop(deploy, tmp_path, loop, plugins, variables, agreed):
    """Two global servers, the bound and the page's other variables on the servers only; all nodes know of them. The
    second loop exchanges half-precision arrays."""
    for plugin in plugins:
        pytest.importorskip(f"geomx_{plugin}", reason=f"the plugin isn't installed: pip install plugins/{plugin}")
    script = tmp_path / "loop.py"
    script.write_text(seed_page.filled(loop, epochs=3, compression={"type": "none"}))
    deployment = deploy(global_servers=2)
    for name in deployment.services:
        told = {"MXNET_KVSTORE_BIGARRAY_BOUND": "5000", **variables} if "server" in name else {}
        deployment.start(name, **told)
    for name in ("master", *deployment.workers):
        deployment.start(name, *EXEC, script)
    codes = deployment.wait()
    assert set(codes.values()) == {0}, deployment.story()
    assert min(accuracies(deployment, deployment.workers).values()) > 0.6
    assert all(setting in deployment.said(server) for setting in agreed for server in ("a.server", "global_server0"))
    for server, way in (("a.server", "up"), ("global_server0", "down")):  # the logs are all there is by hand
        assert loop != "bsc" or "set for all: compression" in deployment.said(server)
        assert re.search(rf"sent between parties: .*[1-9][\d.]* [kM]?B {way}", deployment.said(server))


@needs_mxnet
@pytest.mark.parametrize(
    ("on", "store", "central"),
    [("server", "dist_sync", True), ("worker", "dist_sync", False), ("server", "dist_async", False)],
)
def test_a_plain_trainer(deploy, on, store, central):
    """Central workers train where the global server says so; the master worker's type of store says sync or async."""
    deployment = deploy({"a": 1, "b": 2}, central_trains=central)
    deployment.start_services()
    script = (*EXEC, ROOT / "tests" / "process" / "scripts" / "trainer.py", "--on", on)
    deployment.start("master", *script, "--store", store, "--slice", deployment.num_all_workers - 1)
    for slice_idx, name in enumerate(deployment.workers):
        deployment.start(name, *script, "--slice", slice_idx)
    codes = deployment.wait()
    assert set(codes.values()) == {0}, deployment.story()
    training = [*deployment.workers, "master"] if central else deployment.workers
    assert min(accuracies(deployment, training).values()) > (0.5 if store == "dist_async" else 0.8)
    if store == "dist_sync":
        assert len(hashes(deployment, training)) == 1
