"""What every launcher must keep: all nodes start, and none is left however the run ends.

class TestMine(LauncherSuite):
    choice = "launcher=mine"
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from geomx import plugins
from geomx.api import Launcher
from geomx.config import load
from geomx.launch.cluster import cluster
from geomx.testing.plugin_suite import PluginSuite
from geomx.testing.runs import ENDLESS, SHORT, Run

QUICK = ("tracking=none", "launcher.stop_s=1")


class LauncherSuite(PluginSuite):
    def test_its_options_are_those_of_a_launcher(self) -> None:
        made, missing = self.made(), []
        for name in ("exec_prefix", "stop_s", "control_host", "display"):
            if not hasattr(made, name):
                missing.append(name)
        assert not missing, f"expected the options of geomx.config.surroundings.Local, missing: {', '.join(missing)}"

    def test_it_knows_a_command_for_each_node(self) -> None:
        with self._prepared() as (launcher, nodes):
            for node in nodes:
                command = launcher.command(node)
                fits = isinstance(command, list) and command and all(isinstance(word, str) for word in command)
                assert fits, f"command() of {node.name}: expected a list of words, got {command!r}"

    def test_environments_are_texts(self) -> None:
        with self._prepared() as (launcher, nodes):
            for node in nodes:
                for name, value in launcher.environment(node, 2).items():
                    fits = isinstance(name, str) and isinstance(value, str)
                    assert fits, f"environment() of {node.name}: expected texts, got {name!r}: {value!r}"

    def test_it_can_clean_up_before_anything_was_started(self) -> None:
        launcher = self._made()
        launcher.cleanup()
        launcher.cleanup()

    def test_a_short_training(self) -> None:
        with Run(*SHORT, "tracking=none", *self._words()) as run:
            code = run.wait()
            assert code == 0, f"expected exit code 0, got {code}: {run.last_line()}"
            nodes = run.summary["nodes"]
            codes = {n["name"]: n["exit_code"] for n in nodes if n["exit_code"] != 0}
            assert not codes, f"expected exit code 0 of all nodes, got {codes}"
            hashes = {n["weights_hash"] for n in nodes if n["role"] == "worker"}
            assert len(hashes) == 1, "expected the same weights on all workers"
            run.check_nothing_is_left()

    def test_a_node_that_dies_ends_all(self) -> None:
        with Run(*ENDLESS, *self._words(), *QUICK) as run:
            run.until_it_trains()
            if not (nodes := run.nodes()):
                pytest.skip("its nodes are no processes below the run's own, so none could be killed")
            os.kill(nodes[-1], signal.SIGKILL)  # a worker: they start last
            code = run.wait()
            assert code == 1, f"a worker was killed: expected exit code 1 of the run, got {code}: {run.last_line()}"
            assert "SIGKILL" in run.summary["error"], f"expected who was killed, got: {run.summary['error']}"
            run.check_nothing_is_left()

    def test_an_interrupt_ends_all(self) -> None:
        with Run(*ENDLESS, *self._words(), *QUICK) as run:
            run.until_it_trains()
            run.interrupt()
            code = run.wait()
            assert code == 130, f"Ctrl-C: expected exit code 130, got {code}: {run.last_line()}"
            run.check_nothing_is_left()

    def _words(self) -> list[str]:
        return [self.choice, *(f"launcher.{name}={value}" for name, value in self.options.items())]

    def _made(self) -> Launcher:
        config = load({**self.config(), "topology": {"name": "hips", "parties": 1}})
        launcher: Launcher = plugins.target(config.launcher)(config.launcher)
        assert isinstance(launcher, Launcher), f"expected a geomx.api.Launcher, got {type(launcher).__name__}"
        launcher.configure(config)
        return launcher

    @contextmanager
    def _prepared(self) -> Iterator[tuple[Launcher, list[Any]]]:
        launcher = self._made()
        config = load({**self.config(), "topology": {"name": "hips", "parties": 1}})
        nodes = cluster(config, token="suite", control="", host=launcher.host, log=lambda name: "").nodes
        try:
            launcher.prepare(nodes)
            yield launcher, nodes
        finally:
            launcher.cleanup()
