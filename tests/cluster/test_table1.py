"""The seed's Table 1, read back from what the nodes sent: for each technique, large and small tensors, both tiers, both
directions, in which form values travel (wire id: RAW is dense as declared, FP16 dense halves, BSC1 sparse), and how
many bytes they take."""

import numpy as np
import pytest

from geomx.testing import LocalCluster

for plugin in ("bsc", "fp16", "mpq"):
    pytest.importorskip(f"geomx_{plugin}", reason=f"the plugin isn't installed: pip install plugins/{plugin}")

BOUND, LARGE, SMALL, ROUNDS, RATIO = 1000, 40_000, 1000, 3, 0.01
MEMBERS = 2  # two parties of one worker: each way, two values a round on either tier

SINGLE, HALF, SPARSE = ("RAW", 4), ("FP16", 2), ("BSC1", None)
TABLE = {  # technique: (large in a party, small in a party, large between parties, small between parties)
    "bsc": (SINGLE, SINGLE, SPARSE, SINGLE),
    "fp16": (HALF, HALF, HALF, HALF),
    "mpq": (SINGLE, HALF, SPARSE, HALF),
}


def sent(config, length, dtype="float32", **more):
    """Payload bytes by "tier.direction.wire id"."""
    with LocalCluster([1] * MEMBERS, config=config, **more) as cluster:

        def work(worker):
            out = np.zeros(length, dtype)
            worker.init("w", out)
            worker.pull("w", out)
            for number in range(ROUNDS):
                random = np.random.default_rng((cluster.workers.index(worker), number))
                worker.push("w", random.standard_normal(length).astype(dtype))
                worker.pull("w", out)

        cluster.run(work)
        counters = cluster.counters()
    found = {}
    for name, count in counters.items():
        tier, _, rest = name.partition(".")
        what, _, wire_id = rest.partition(".")
        if wire_id:
            found[f"{tier}.{what.removesuffix('_payload_bytes')}.{wire_id}"] = count
    return found


def check(found, tier, length, form):
    wire_id, width = form
    for direction in ("up", "down"):
        here = {name: count for name, count in found.items() if name.startswith(f"{tier}.{direction}.")}
        assert list(here) == [f"{tier}.{direction}.{wire_id}"]
        (count,) = here.values()
        if width is not None:
            assert count == MEMBERS * ROUNDS * length * width
        else:  # a single and Rice's code of a gap (8.1 bits on average) for each value, and a few bytes a part
            entries = MEMBERS * ROUNDS * RATIO * length
            assert 4.9 * entries < count < 5.2 * entries + 10 * MEMBERS * ROUNDS


@pytest.mark.parametrize("technique", TABLE)
@pytest.mark.parametrize("size", ["large", "small"])
def test_what_is_on_the_wire_is_table_1(technique, size):
    config = {"compression": {"name": technique}}
    if technique != "fp16":
        config["compression"] |= {"size_lower_bound": BOUND, "ratio": RATIO}
    length, column = (LARGE, 0) if size == "large" else (SMALL, 1)
    found = sent(config, length)
    check(found, "lan", length, TABLE[technique][column])
    check(found, "wan", length, TABLE[technique][column + 2])


@pytest.mark.parametrize("technique", ["bsc", "mpq"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_with_an_optimizer_on_the_servers_large_tensors_are_sparse_both_ways_too(technique, optimizer):
    config = {"compression": {"name": technique, "size_lower_bound": BOUND, "ratio": RATIO}}
    found = sent(config, LARGE, settings={"optimizer": {"name": optimizer, "learning_rate": 0.1}})
    check(found, "wan", LARGE, SPARSE)
    check(found, "lan", LARGE, SINGLE)


@pytest.mark.parametrize("technique", ["bsc", "fp16", "mpq"])
def test_small_tensors_that_a_script_declares_in_half_precision_are_as_small(technique):
    found = sent({"compression": {"name": technique}}, SMALL, "float16")
    for tier in ("lan", "wan"):
        check(found, tier, SMALL, ("RAW", 2))


@pytest.mark.parametrize(("bits", "low", "high"), [(16, 2.9, 3.2), (8, 1.9, 2.2)])
def test_narrow_values_of_the_sparse_part(bits, low, high):
    found = sent({"compression": {"name": "mpq", "value_bits": bits}}, LARGE)
    entries = MEMBERS * ROUNDS * RATIO * LARGE
    for direction in ("up", "down"):
        assert low * entries < found[f"wan.{direction}.BSC1"] < high * entries + 10 * MEMBERS * ROUNDS


def test_the_published_form_takes_8_bytes_an_entry_and_more_the_more_parties_there_are():
    found = sent({"compression": {"name": "bsc", "variant": "original"}}, LARGE)
    entries = MEMBERS * ROUNDS * RATIO * LARGE
    assert found["wan.up.BSC0"] == 8 * entries
    assert found["wan.down.BSC0"] == 8 * entries * MEMBERS
