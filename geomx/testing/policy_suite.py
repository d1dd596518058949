"""What every compression policy must keep: every node asks it for itself, so its answers must be the same everywhere.

class TestMine(PolicySuite):
    choice = "compression=mine"
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from geomx import _core, plugins
from geomx.api import WIDTHS, CodecChoice, Compression, ConfigError
from geomx.codecs import codec_of
from geomx.testing.plugin_suite import PluginSuite, check_params, elsewhere, is_number

NAMES = ("fc0.weight", "0", "block 1/ключ")
LENGTHS = (0, 1, 2, 255, 256, 999, 1000, 1001, 10_000, 1_000_001, 2**32 + 1)
Question = tuple[str, int, str, str, str]


class PolicySuite(PluginSuite):
    def test_every_question_has_an_answer(self) -> None:
        policy = self.made().policy()
        for question in questions():
            answered(policy, question)

    def test_the_same_question_has_the_same_answer(self) -> None:
        one, two = self.made().policy(), self.made().policy()
        first = {q: answered(one, q) for q in questions()}
        for question in reversed(first):
            again = answered(two, question)
            assert again == first[question], f"{_words(question)}: first {first[question]}, when asked again {again}"

    def test_every_node_gives_the_same_answers(self) -> None:
        group, _, name = self.choice.partition("=")
        here = told(group, {"name": name, **self.options})
        there = elsewhere("geomx.testing.policy_suite:told", group, {"name": name, **self.options})
        for question, one, two in zip(questions(), here, there, strict=True):
            assert one == two, f"{_words(question)}: {one} in this process, {two} in another; nodes must agree"

    def test_parameters_are_numbers_and_words(self) -> None:
        for choice in choices(self.made()):
            check_params(choice.params, f"codec {choice.name}")

    def test_the_codecs_that_it_names_exist(self) -> None:
        options = self.made()
        for choice in choices(options):
            codec_behind(options, choice)

    def test_a_codec_takes_what_it_is_chosen_for(self) -> None:
        options = self.made()
        policy, made = options.policy(), {}
        for question in questions():
            choice = answered(policy, question)
            if not isinstance(choice, CodecChoice) or choice.name == "identity":
                continue
            if (key := repr(choice)) not in made:
                made[key] = codec_behind(options, choice)
            assert made[key].takes(question[2]), (
                f"{_words(question)}: {choice.name} is chosen, and takes no {question[2]}"
            )

    def test_it_says_what_an_element_takes(self) -> None:
        options = self.made()
        for name, length, dtype, *_ in questions():
            told = options.bytes_per_element(name, length, dtype)
            fits = is_number(told) and 0 < told <= 2 * WIDTHS[dtype]
            assert fits, f"bytes_per_element({name!r}, {length}, {dtype!r}): expected bytes above 0, got {told!r}"

    def test_what_an_element_takes_is_about_right(self) -> None:
        options, length = self.made(), 100_000
        choice = options.policy().choose("fc0.weight", length, "float32", "wan", "up")
        if choice.name == "identity":
            pytest.skip("large float32 tensors travel up between parties as they are")
        from geomx.testing.codec_suite import drawn

        told = options.bytes_per_element("fc0.weight", length, "float32")
        real = len(codec_behind(options, choice).encode(drawn(length, 1))) / length
        assert told / 2 <= real <= told * 2, (
            f"bytes_per_element says {told:g} for {length} float32, {choice.name} makes {real:.3g} of normal values; "
            "parts are cut and servers are loaded by it"
        )


def questions() -> Iterator[Question]:
    for name in NAMES:
        for length in LENGTHS:
            for dtype in WIDTHS:
                for tier in ("lan", "wan"):
                    for direction in ("up", "down"):
                        yield name, length, dtype, tier, direction


def answered(policy: Any, question: Question) -> CodecChoice | str:
    """A choice, or the sentence of a tensor that is refused."""
    try:
        found = policy.choose(*question)
    except ConfigError as e:
        if not str(e):
            raise AssertionError(f"{_words(question)}: expected a sentence, got a ConfigError without one") from e
        return str(e)
    except Exception as e:
        raise AssertionError(f"{_words(question)}: expected a CodecChoice, got {type(e).__name__}: {e}") from e
    assert isinstance(found, CodecChoice), f"{_words(question)}: expected a CodecChoice, got {found!r}"
    return found


def told(group: str, given: dict[str, Any]) -> list[Any]:
    """All answers as JSON holds them."""
    policy = plugins.options(group, given).policy()
    found = (answered(policy, question) for question in questions())
    return [{"name": f.name, "params": dict(f.params)} if isinstance(f, CodecChoice) else f for f in found]


def choices(options: Compression) -> list[CodecChoice]:
    """All codecs that the policy names, each once."""
    policy, found = options.policy(), {}
    for question in questions():
        choice = answered(policy, question)
        if isinstance(choice, CodecChoice) and choice.name != "identity":
            found[repr(sorted(asdict(choice).items()))] = choice
    return list(found.values())


def codec_behind(options: Compression, choice: CodecChoice) -> _core.Codec:
    """The codec behind a choice. Raises AssertionError."""
    try:
        return codec_of(options, choice)
    except ConfigError as e:
        raise AssertionError(str(e)) from e


def _words(question: Question) -> str:
    name, length, dtype, tier, direction = question
    return f"{length} {dtype} called {name!r}, {direction} in the {tier.upper()}"
