"""What every codec must keep, as a class of pytest tests that a codec's own tests inherit.

    class TestMine(CodecSuite):
        promise = Promise(error=1 / 254, not_finite="zero")

        def make(self):
            return _core.Codec("mine", {"level": 3}, plugin=str(LIBRARY))      # or make=mine.make, in Python

All values go through the core, as in a run: type by type, in parts, up and down. For codecs with momentum, `make` must
switch it off: what arrives is compared with what was given.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from geomx import _core
from geomx.api import WIDTHS, Promise

HALVES = {"float16", "bfloat16"}  # may be taken where they aren't promised
LENGTHS = (0, 1, 2, 7, 64, 65, 1000, 4099)
Values = NDArray[Any]


class CodecSuite:
    promise: ClassVar[Promise] = Promise()

    def make(self) -> _core.Codec:
        """A new codec, the same each time."""
        raise NotImplementedError

    # --- round trip -------------------------------------------------------------------------------------------------
    @pytest.mark.parametrize("length", LENGTHS)
    def test_what_arrives_is_within_the_error(self, length: int) -> None:
        for dtype in self.promise.dtypes:
            values = drawn(length, 1, dtype)
            codec = self.make()
            got = codec.decode(codec.encode(values), length, dtype)
            assert got.dtype == values.dtype, f"{length} values of {dtype} were decoded as {got.dtype}"
            assert got.shape == (length,), f"{length} values were decoded to {got.shape}"
            self._check_arrived(got, values)

    @pytest.mark.parametrize("length", LENGTHS)
    def test_no_part_is_larger_than_it_may_be(self, length: int) -> None:
        for dtype in self.promise.dtypes:
            codec = self.make()
            for number in range(3):
                size, most = len(codec.encode(drawn(length, number, dtype))), codec.max_encoded_size(length, dtype)
                assert size <= most, f"{length} values of {dtype}: at most {most} bytes expected, got {size}"

    @pytest.mark.parametrize("length", LENGTHS)
    def test_zeros_stay_zeros(self, length: int) -> None:
        codec = self.make()
        got = codec.decode(codec.encode(np.zeros(length, np.float32)), length, "float32")
        assert not got.any(), f"{length} zeros expected, got {np.count_nonzero(got)} that aren't"

    @pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e-6, 6e4])
    def test_one_element_arrives(self, value: float) -> None:
        codec, values = self.make(), np.array([value], np.float32)
        got = codec.decode(codec.encode(values), 1, "float32")
        allowed = max(self.promise.error * abs(value), 1e-7)
        assert abs(got[0] - value) <= allowed, f"expected {value} within {allowed:.3g}, got {got[0]}"

    def test_adding_is_decoding_and_adding(self) -> None:
        codec, values, total = self.make(), drawn(1000, 2), drawn(1000, 3)
        data, expected = codec.encode(values), drawn(1000, 3)
        expected += codec.decode(data, 1000, "float32")
        codec.accumulate(data, total)
        apart = np.abs(total - expected).max()
        assert np.allclose(total, expected, rtol=1e-6, atol=1e-7), f"what was added is {apart:.3g} from what is decoded"

    @pytest.mark.parametrize("part_length", [1, 64, 300, 1000])
    def test_parts_make_up_the_tensor(self, part_length: int) -> None:
        codec, values, got = self.make(), drawn(1000, 4), np.zeros(1000, np.float32)
        for number, data in enumerate(codec.encode_parts(values, part_length)):
            codec.accumulate(data, got[number * part_length :][:part_length])
        self._check_arrived(got, values)

    def test_other_types_are_refused(self) -> None:
        codec = self.make()
        for dtype in self.promise.dtypes:
            assert codec.takes(dtype), f"it is expected to take {dtype}, and says that it doesn't"
        for dtype in sorted(WIDTHS.keys() - set(self.promise.dtypes) - HALVES):
            assert not codec.takes(dtype), f"it is expected not to take {dtype}, and says that it does"

    # --- what isn't a number ----------------------------------------------------------------------------------------
    def test_what_is_not_finite_follows_the_rule_and_harms_nothing_else(self) -> None:
        codec, values = self.make(), drawn(1000, 5)
        values[[3, 400, 999]] = [np.nan, np.inf, -np.inf]
        is_finite = np.isfinite(values)
        got = codec.decode(codec.encode(values), 1000, "float32")
        if self.promise.not_finite == "zero":
            assert not got[~is_finite].any(), f"0 expected of NaN and infinities, got {got[~is_finite]}"
        elif self.promise.not_finite == "finite":
            assert np.isfinite(got).all(), f"a number expected of NaN and infinities, got {got[~is_finite]}"
        else:
            assert np.isnan(got[3]), f"NaN expected of NaN, got {got[3]}"
        assert not np.isnan(np.delete(got, 3)).any(), "values beside a NaN became NaN"
        for number in range(3):
            later = codec.decode(codec.encode(drawn(1000, number)), 1000, "float32")
            assert np.isfinite(later).all(), "it spread into later rounds"

    # --- what comes from the network --------------------------------------------------------------------------------
    def test_wrong_bytes_are_refused_and_change_nothing(self) -> None:
        codec, length = self.make(), 300
        good = codec.encode(drawn(length, 6))
        for data in (b"", good[:-1], good + b"\0", good + good):
            total = drawn(length, 7)
            with refused(f"{len(data)} bytes of a part that has {len(good)}"):
                codec.accumulate(data, total)
            assert np.array_equal(total, drawn(length, 7)), "bytes were refused, and the sum was changed"

    def test_any_bytes_are_decoded_or_refused(self) -> None:
        codec, length, random = self.make(), 300, np.random.default_rng(8)
        good = np.frombuffer(codec.encode(drawn(length, 9)), np.uint8)
        for turn in range(2000):
            data = good.copy() if turn % 2 else random.integers(0, 256, random.integers(1, 2 * len(good)), np.uint8)
            data[random.integers(0, len(data), 3)] = random.integers(0, 256, 3)
            total = drawn(length, 7)
            try:
                codec.accumulate(data.tobytes(), total)
            except _core.Error:
                assert np.array_equal(total, drawn(length, 7)), "bytes were refused, and the sum was changed"

    # --- memory -----------------------------------------------------------------------------------------------------
    def test_slots_and_directions_know_nothing_of_each_other(self) -> None:
        codec, alone = self.make(), self.make()
        for number in range(5):
            values = drawn(500, number)
            expected = alone.encode(values)
            same = codec.encode(values, slot=1) == expected or self.promise.sparse  # lots may differ by slot
            assert same, "another slot's rounds changed what a slot encodes"
            codec.encode(drawn(500, 100 + number), slot=2)
            codec.encode(drawn(500, 200 + number), slot=1, direction="down")
            assert codec.encode(values, slot=0) == expected, "another slot's rounds changed what a slot encodes"

    def test_the_same_again_gives_the_same_bytes(self) -> None:
        one, two = self.make(), self.make()
        for number in range(5):
            same = one.encode(drawn(700, number)) == two.encode(drawn(700, number))
            assert same, f"two codecs were given the same, and encoded round {number + 1} differently"

    def test_a_saved_slot_goes_on_where_it_was(self) -> None:
        one, two = self.make(), self.make()
        for number in range(4):
            one.encode(drawn(700, number))
            two.encode(drawn(700, 50 + number))
        two.load(one.save(), 700, "float32")
        assert two.save() == one.save(), "what was loaded is not what is saved again"
        for number in range(4):
            same = one.encode(drawn(700, number)) == two.encode(drawn(700, number))
            assert same, "a slot that was loaded encodes otherwise than the one that was saved"

    def test_what_is_no_saved_slot_is_refused(self) -> None:
        codec = self.make()
        codec.encode(drawn(700, 1))
        saved = codec.save()
        for data in (saved + b"\0", saved[:-1]) if saved else (b"\0",):
            with refused(f"a saved slot of {len(data)} bytes where {len(saved)} are right"):
                codec.load(data, 700, "float32")

    def test_nothing_is_lost_over_50_rounds(self) -> None:
        for dtype in self.promise.dtypes:
            codec, given, got = self.make(), np.zeros(900), np.zeros(900)
            rounds = [drawn(900, number, dtype) for number in range(50)]
            rounds += [np.zeros(900, dtype)] * (self.promise.rounds_to_drain if codec.keeps_residual else 0)
            for values in rounds:
                given += values
                for number, data in enumerate(codec.encode_parts(values, 256)):
                    part = got[256 * number :][:256]
                    part += codec.decode(data, len(part), dtype)
            largest = max(abs(values).max() for values in rounds)
            allowed = (1 if codec.keeps_residual else 50) * self.promise.error * 1.01 * largest + 1e-3
            missing = abs(given - got).max()
            assert missing <= allowed, (
                f"after 50 rounds at most {allowed:.3g} may be missing of a value, {missing:.3g} is"
            )

    def test_what_was_lost_leaves_again(self) -> None:
        codec, values = self.make(), drawn(900, 11)
        if not codec.keeps_residual:
            with refused("give_back of a codec that keeps no residual"):
                codec.give_back(codec.encode(values))
            return
        sent = codec.encode_parts(values, 300)
        for number, data in enumerate(sent):
            codec.give_back(data, part_length=300, part=number)
        again = codec.encode_parts(np.zeros(900, np.float32), 300)
        for first, second in zip(sent, again, strict=True):
            lost, got = codec.decode(first, 300, "float32"), codec.decode(second, 300, "float32")
            allowed = 2 * self.promise.error * abs(values).max() + 1e-6
            apart = np.abs(got - lost).max()
            assert apart <= allowed, (
                f"what was given back left again, {apart:.3g} from what was lost; {allowed:.3g} allowed"
            )

    # --- on the way -------------------------------------------------------------------------------------------------
    def test_merged_parts_carry_their_sum(self) -> None:
        codec = self.make()
        if not codec.can_merge:
            pytest.skip("it can't merge encoded parts, and doesn't say that it can")
        for count in (1, 2, 5):
            pieces = [codec.encode(drawn(600, number), slot=number) for number in range(count)]
            total = np.zeros(600, np.float32)
            for piece in pieces:
                codec.accumulate(piece, total)
            merged = codec.merge(pieces, 600, "float32")
            got = codec.decode(merged, 600, "float32")
            most = self.promise.merge_error * np.abs(total).max()
            assert np.abs(got - total).max() <= most, f"{count} merged parts decode to something else than their sum"
        with refused("a part that is cut off, given to merge"):
            codec.merge([pieces[0], pieces[1][:-1]], 600, "float32")

    def test_more_weighs_more(self) -> None:
        codec, values = self.make(), drawn(600, 12)
        scores = [
            codec.score(codec.encode(values * np.float32(scale), slot=i), 600, "float32")
            for i, scale in enumerate((0, 1, 2))
        ]
        assert scores[0] == 0 < scores[1] < scores[2], f"rising scores from 0 expected, got {scores}"

    def _check_arrived(self, got: Values, values: Values) -> None:
        bound = self.promise.error * np.abs(values, dtype=np.float64).max(initial=0) * 1.001
        apart = np.abs(got.astype(np.float64) - values)
        if self.promise.sparse:
            apart[got == 0] = 0
            assert np.count_nonzero(got) >= min(len(values), 1), f"nothing arrived of {len(values)} values"
        most = apart.max(initial=0)
        assert most <= bound, (
            f"{len(values)} values: within {bound:.3g} expected (error {self.promise.error:.3g}), {most:.3g} off"
        )


@contextmanager
def refused(what: str) -> Iterator[None]:
    """The core's Error is expected from the block."""
    try:
        yield
    except _core.Error:
        return
    raise AssertionError(f"expected to be refused, and was taken: {what}")


def drawn(length: int, seed: int, dtype: str = "float32") -> Values:
    values: Values = np.random.default_rng(seed).standard_normal(length).astype(dtype)
    return values
