"""Codecs in Python on the way through a cluster: without loss, with a residual, and what happens to wrong bytes."""

import numpy as np
import pytest

from geomx.api import Codec, CodecChoice
from geomx.kv import Error
from geomx.testing import LocalCluster

SPREAD = {"topology": {"bigarray_bound": 1}, "scheduler": {"fifo": {"part_elements": 4}}}


class Reversed(Codec):
    """Lossless: the bytes back to front."""

    wire_id = "BACK"

    def __init__(self, params):
        self.calls = params

    def encode(self, slot, part, values):
        return values.tobytes()[::-1]

    def decode(self, part, data, out):
        if len(data) != out.nbytes:
            raise ValueError(f"expected {out.nbytes} bytes but got {len(data)}")
        out[:] = np.frombuffer(bytes(data)[::-1], out.dtype)


class Rounded(Codec):
    """Lossy: whole numbers; what is cut off goes with the next round."""

    wire_id = "RND "
    lossy = True

    def __init__(self, params):
        self.residuals = []

    def open_slot(self, whole):
        slot = np.zeros(whole.tensor_length, np.float32)
        self.residuals.append(slot)
        return slot

    def encode(self, slot, part, values):
        at = slice(part.offset, part.offset + part.length)
        slot[at] += values
        rounded = np.rint(slot[at]).astype(np.int16)
        slot[at] -= rounded
        return rounded.tobytes()

    def decode(self, part, data, out):
        out[:] = np.frombuffer(data, np.int16)

    def give_back(self, slot, part, data):
        slot[part.offset : part.offset + part.length] += np.frombuffer(data, np.int16)


def chosen(name, tiers=("lan", "wan"), directions=("up", "down")):
    def choose(key, length, dtype, tier, direction):
        return CodecChoice(name if tier in tiers and direction in directions else "identity")

    return choose


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32"])
def test_a_lossless_codec_changes_nothing(dtype):
    def work(worker):
        worker.init("k", np.zeros(11, dtype))
        out = np.zeros(11, dtype)
        for _ in range(2):
            worker.push_pull("k", np.arange(11).astype(dtype), out)
        return out.tolist()

    class Any(Reversed):
        dtypes = ("float32", "float16", "float64", "int32")

    with LocalCluster([2, 1], global_servers=2, config=SPREAD, codecs={"back": Any}, choose=chosen("back")) as cluster:
        assert cluster.run(work) == [[3 * i for i in range(11)]] * 3


@pytest.mark.parametrize("scope", ["part", "tensor"])
@pytest.mark.parametrize("central", [0, 1])
def test_what_a_lossy_codec_keeps_back_arrives_later(scope, central):
    """Pushed = what arrived + residuals on the way up, on each tier; and all workers get the same."""
    made = []
    rounds = 7

    class Mine(Rounded):
        def __init__(self, params):
            super().__init__(params)
            made.append(self)

        def prepare(self, slot, whole, values):
            assert len(values) == whole.length <= whole.tensor_length

    Mine.scope = scope

    def work(worker):
        out, total = np.zeros(10, np.float32), np.zeros(10, np.float32)
        for _ in range(rounds):
            worker.push_pull("k", np.linspace(0, 0.9, 10, dtype=np.float32), out)
            total += out
        return total

    with LocalCluster(
        [2, 1],
        global_servers=2,
        central_workers=central,
        central_trains=bool(central),
        config=SPREAD,
        codecs={"rounded": Mine},
        choose=chosen("rounded", directions=("up",)),
        deadline_s=10,
    ) as cluster:
        totals = cluster.run(work)
    assert all((total == totals[0]).all() for total in totals)
    kept = sum(slot for codec in made for slot in codec.residuals)
    np.testing.assert_allclose(totals[0] + kept, np.linspace(0, 0.9, 10) * (3 + central) * rounds, atol=1e-4)
    assert np.abs(kept).max() > 0


def test_a_codec_on_the_wan_down_gives_all_parties_the_same_value():
    def work(worker):
        out = np.zeros(10, np.float32)
        worker.push_pull("k", np.full(10, 0.3, np.float32), out)
        return out.tolist()

    with LocalCluster(
        [2, 1],
        central_workers=1,
        central_trains=True,
        config=SPREAD,
        codecs={"rounded": Rounded},
        choose=chosen("rounded", tiers=("wan",), directions=("down",)),
    ) as cluster:
        assert cluster.run(work) == [[1.0] * 10] * 4  # 4 * 0.3 rounded, for the central party's workers too


def test_wrong_bytes_are_refused_in_a_sentence():
    class Short(Reversed):
        def encode(self, slot, part, values):
            return super().encode(slot, part, values)[:-1]

    def work(worker):
        worker.push_pull("k", np.ones(4, np.float32))

    with pytest.raises(Error, match='key "k": Short.decode: ValueError: expected 16 bytes but got 15'):  # noqa: SIM117
        with LocalCluster([1], codecs={"short": Short}, choose=chosen("short")) as cluster:
            cluster.run(work)


def test_two_nodes_that_choose_differently_say_so():
    def choose(key, length, dtype, tier, direction):
        choices.append(1)
        return CodecChoice("back" if len(choices) <= 4 else "identity")

    choices = []

    def work(worker):
        worker.push_pull("k", np.ones(4, np.float32))

    with pytest.raises(Error, match="format that was not agreed on"):  # noqa: SIM117
        with LocalCluster([1], codecs={"back": Reversed}, choose=choose) as cluster:
            cluster.run(work)


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ("missing", 'key "k": no codec named missing; there are: back, identity'),
        ("back", 'key "k": codec back does not take float64'),
    ],
)
def test_a_codec_that_can_not_be_had_ends_the_run_in_a_sentence(choice, sentence):
    def work(worker):
        worker.push_pull("k", np.ones(4))

    class Narrow(Reversed):
        dtypes = ("float32",)

    with pytest.raises(Error, match=sentence):  # noqa: SIM117
        with LocalCluster([1], codecs={"back": Narrow}, choose=chosen(choice)) as cluster:
            cluster.run(work)


def test_a_codec_of_whole_tensors_has_a_slot_for_each_member_on_the_way_down_in_mixed_sync():
    class Whole(Rounded):
        scope = "tensor"

    def work(worker):
        out = np.zeros(9, np.float32)
        worker.init("k", out)
        for _ in range(5):
            worker.push_pull("k", np.ones(9, np.float32), out)
        return out

    with LocalCluster(
        [1, 1],
        config=SPREAD,
        codecs={"whole": Whole},
        choose=chosen("whole", tiers=("wan",)),
        settings={"sync": {"name": "mixed", "staleness": 0}, "optimizer": {"name": "sgd", "learning_rate": 1.0}},
    ) as cluster:
        assert all(np.isfinite(out).all() for out in cluster.run(work))
