"""What the options of every plugin must keep, whatever its kind: the base of the suites of each kind.

class TestMine(SchedulerSuite):
    choice = "scheduler=mine"        # as on the command line; the distribution must be installed
    options = {"part_elements": 10}  # where the defaults don't do
"""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from omegaconf import OmegaConf

from geomx import plugins
from geomx.config import MANY
from geomx.errors import ConfigError
from geomx.options import KINDS, allowed_text, plain
from geomx.testing.training import Config, train

INSTEAD: dict[str, Callable[[Any], Any]] = {
           "at_least": lambda n: n - 1, "above": lambda n: n, "at_most": lambda n: n + 1, "below": lambda n: n,
           "one_of": lambda _: "no-such-word"}  # fmt: skip


class PluginSuite:
    choice: ClassVar[str] = ""
    options: ClassVar[Mapping[str, Any]] = {}
    accuracy: ClassVar[float] = 0.5  # that a short training must reach; chance is 0.1

    def made(self, **changes: Any) -> Any:
        """The plugin's options, with these values."""
        group, _, name = self.choice.partition("=")
        return plugins.options(group, {"name": name, **self.options, **changes})

    def config(self) -> Config:
        """Groups of the configuration in which the plugin is chosen, with what it says that it needs."""
        group, _, name = self.choice.partition("=")
        chosen: Config = {group: {name: dict(self.options)} if group in MANY else {"name": name, **self.options}}
        for needed in getattr(self.made(), "needs", {}):
            other, _, value = needed.partition("=")
            chosen.setdefault(other, {value: {}} if other in MANY else {"name": value})
        return chosen

    # --- options ------------------------------------------------------------------------------------------------
    def test_it_can_be_chosen_on_the_command_line(self) -> None:
        from geomx.config import source

        group, _, name = self.choice.partition("=")
        composed = OmegaConf.to_container(source.node(group, name))
        assert isinstance(composed, dict)
        fields = [f.name for f in dataclasses.fields(plugins.load(group, name))]
        assert set(composed) - {"name"} == set(fields), (
            f"expected the options {', '.join(fields)}, Hydra composes {', '.join(map(str, composed))}"
        )

    def test_each_option_says_what_it_is_for(self) -> None:
        for field in dataclasses.fields(self.made()):
            told = field.metadata.get("help", "")
            assert told, f"{field.name}: expected option(default, 'what it is for'), got a field without such a word"

    def test_options_survive_yaml(self) -> None:
        made = self.made()
        read: Any = OmegaConf.to_container(OmegaConf.create(OmegaConf.to_yaml(OmegaConf.create(plain(made)))))
        again = plugins.options(self.choice.partition("=")[0], read)
        assert plain(again) == plain(made), f"written to YAML and read again, {plain(made)} became {plain(again)}"

    def test_what_is_no_option_is_refused(self) -> None:
        told = refusal(lambda: self.made(no_such_option=1))
        assert "no_such_option" in (told or ""), f"no_such_option=1: expected a ConfigError that names it, got {told}"

    def test_values_that_are_not_allowed_are_refused(self) -> None:
        for name, value in self._wrong_values():
            told = refusal(partial(self.made, **{name: value}))
            allowed = allowed_text(type(self.made()), name)
            assert told is not None, f"{name}={value!r}: expected a ConfigError (allowed is {allowed}), it was taken"
            assert name in told, f"{name}={value!r}: expected a sentence that names the option, got: {told}"

    # --- in a run -----------------------------------------------------------------------------------------------
    def test_a_short_training(self) -> None:
        results = train(self.config())
        reached = results[0]["accuracy"]
        assert reached is None or reached >= self.accuracy, (
            f"expected an accuracy of {self.accuracy} at least, got {reached:.3f}"
        )
        weights = {r["weights_hash"] for r in results}
        assert len(weights) == 1, "expected the same weights on all workers at the end, they differ"

    def _wrong_values(self) -> Iterator[tuple[str, Any]]:
        for field in dataclasses.fields(self.made()):
            for rule, limit in field.metadata.get("allowed", {}).items():
                yield field.name, INSTEAD[rule](limit)
            if field.type in KINDS and field.type is not str:
                yield field.name, "no-such-word"


def refusal(act: Any) -> str | None:
    """The sentence of the ConfigError that `act` ends in; None if it doesn't. Anything else that it raises fails."""
    try:
        act()
    except ConfigError as e:
        return str(e)
    except Exception as e:
        raise AssertionError(f"expected a ConfigError, got {type(e).__name__}: {e}") from e
    return None


def elsewhere(function: str, *arguments: Any) -> Any:
    """What 'module:function' returns in another process, whose sets and hashes have another order: what nodes decide
    for themselves must be the same on all of them. Arguments and result travel as JSON."""
    module, _, name = function.partition(":")
    code = f"import json, sys; from {module} import {name}; print(json.dumps({name}(*json.load(sys.stdin))))"
    ended = subprocess.run([sys.executable, "-c", code], input=json.dumps(arguments), capture_output=True, text=True,
                           check=False, timeout=100, env={**os.environ, "PYTHONHASHSEED": "20"})  # fmt: skip
    assert ended.returncode == 0, f"in another process: {(ended.stderr.strip().splitlines() or ['it failed'])[-1]}"
    return json.loads(ended.stdout.splitlines()[-1])


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def check_params(params: Any, of: str) -> None:
    """Parameters travel to the native side as numbers and words."""
    assert isinstance(params, Mapping), f"{of}: expected a mapping of parameters, got {params!r}"
    for name, value in params.items():
        fits = isinstance(name, str) and (isinstance(value, str | bool) or is_number(value))
        assert fits, f"{of}: expected numbers and words as parameters, got {name!r}={value!r}"
