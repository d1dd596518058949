"""Even loads, however tensors are declared."""

import json
import math
import random

import pytest

pytest.importorskip("geomx_multigps", reason="the plugin isn't installed: pip install plugins/multigps")

from geomx_multigps import MultiGps, place
from geomx_multigps.models import MODELS

from geomx.api import Tensor
from geomx.config import load
from geomx.errors import ConfigError
from geomx.plan import Planner


def planner(compression="none", servers=4, **options):
    topology = {"name": "multigps", "global_servers": servers, **options}
    return Planner(load({"topology": topology, "compression": {"name": compression}}))


def imbalance(made):
    return max(made._held) / (sum(made._held) / len(made._held))


@pytest.mark.parametrize("compression", ["none", "bsc", "fp16", "mpq"])
@pytest.mark.parametrize("servers", [2, 4, 8, 16])
@pytest.mark.parametrize("model", MODELS)
def test_a_list_is_balanced(model, servers, compression):
    made = planner(compression, servers)
    made.announce([(name, math.prod(shape), "float32") for name, shape in MODELS[model]])
    shards = [made.shards(name, math.prod(shape), servers) for name, shape in MODELS[model]]
    assert imbalance(made) <= (1.01 if servers <= 4 else 1.02)
    small = [s for s, (_, shape) in zip(shards, MODELS[model]) if math.prod(shape) <= 1_000_000]
    assert servers > 4 or model == "seed_cnn" or all(len(s) == 1 for s in small)


@pytest.mark.parametrize("compression", ["none", "bsc"])
@pytest.mark.parametrize("servers", [2, 4])
@pytest.mark.parametrize("model", MODELS)
def test_so_are_tensors_that_come_one_by_one(model, servers, compression):
    made = planner(compression, servers)
    for name, shape in MODELS[model]:
        made.shards(name, math.prod(shape), servers)
    assert imbalance(made) <= 1.05


def test_every_element_has_one_server():
    draw = random.Random(1)
    for _ in range(60):
        servers = draw.randint(1, 16)
        made = planner(servers=servers, bigarray_bound=draw.choice([1, 50, 10_000]), least_bytes=draw.choice([4, 900]))
        sizes = [draw.choice([0, 1, 2, 17, 1000, 50_000]) for _ in range(draw.randint(1, 9))]
        if draw.random() < 0.5:
            made.announce([(f"w{i}", n, "float32") for i, n in enumerate(sizes)])
        for i, n in enumerate(sizes):
            assert sum(s.length for s in made.shards(f"w{i}", n, servers)) == n  # the planner checks the rest


def test_more_than_the_bound_is_spread_and_weights_count():
    options = MultiGps(global_servers=3, bigarray_bound=100, weights=[2.0, 1.0, 1.0])
    (spread,), (small,) = (
        place(options, [Tensor("w", 400, 1600.0)], [0] * 3),
        place(options, [Tensor("b", 8, 32.0)], [1600.0, 700.0, 900.0]),
    )
    assert [s.length for s in spread] == [200, 100, 100]
    assert [s.server for s in small] == [1]


def ledger(where, sizes, rounds=10):
    """Of a run with two parties, as the launcher leaves it."""
    where.mkdir()
    (where / "summary.json").write_text(json.dumps({"rounds": rounds}))
    lines = ["tier,sender,receiver,direction,key,bytes"]
    for key, size in sizes.items():
        for party in ("party0.server", "party1.server"):
            lines += [f"wan,{party},global_server0,up,{key},{size * rounds}",
                      f"wan,global_server0,{party},down,{key},{size * rounds}",
                      f"wan,{party},global_server0,init,{key},{size * 1000}"]  # fmt: skip
    (where / "ledger.csv").write_text("\n".join([*lines, "lan,w,s,up,a,5", "wan,s,t,up,,7"]) + "\n")
    return str(where)


def test_loads_that_a_run_has_measured_count_in_the_next(tmp_path):
    run = ledger(tmp_path / "run", {"a": 500, "b": 200, "c": 300})
    made = planner(servers=2, measured=run)
    made.announce([(name, 1000, "float32") for name in "abc"])
    (a,), (b,), (c,) = (made.shards(name, 1000, 2) for name in "abc")
    assert made._held == [500, 500] and a.server == 0 and b.server == c.server == 1
    assert planner(servers=2, measured="/none").announce  # only who places needs it
    for wrong in ("/none", ledger(tmp_path / "no rounds", {"a": 1}, 0), ledger(tmp_path / "no keys", {})):
        with pytest.raises(ConfigError, match="topology.measured: .* given: "):
            planner(measured=wrong).shards("a", 10, 4)
    (tmp_path / "run" / "summary.json").write_text("{}")
    with pytest.raises(ConfigError, match="has no 'rounds': is it a run that has finished"):
        planner(measured=run).shards("a", 10, 4)


def test_weights_must_fit():
    with pytest.raises(ConfigError, match=r"topology\.weights: .* each of the 2 global servers"):
        load({"topology": {"name": "multigps", "weights": [1.0, 2.0, 3.0]}})
