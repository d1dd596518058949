"""A sample of what tests/cluster/test_combinations.py trains with: MXNet, and a process for each node."""

from importlib.util import find_spec

import pytest

WORDS = ("topology.workers=1", "task.max_rounds=120", "task.eval_every=0", "sync.optimizer.learning_rate=0.005")
SAMPLE = [
    ("compression=mpq", "compression.ratio=0.1", "transport=dgt"),
    (
        "topology=multigps",
        "compression=bsc",
        "compression.ratio=0.1",
        "scheduler=[p3,tsengine]",
        "sync.optimizer.where=server",
    ),
    ("topology=flat", "compression=fp16", "transport=dgt", "scheduler=tsengine"),
]


@pytest.mark.skipif(find_spec("mxnet") is None, reason="MXNet isn't installed: pip install geomx[mxnet]")
@pytest.mark.parametrize("choices", SAMPLE, ids=",".join)
def test_a_combination_with_processes(begin, choices):
    ended = begin(*WORDS, *choices, real=True).wait()
    assert ended.code == 0, ended.output
    assert ended.summary["accuracy"] >= 0.85
    assert len({n["weights_hash"] for n in ended.summary["nodes"] if n.get("weights_hash")}) == 1
