"""The benchmarks' contract, with stand-ins for what they measure."""

import json

import numpy as np
import pytest

from geomx import bench
from geomx.bench import Case, codec, kv, traffic
from geomx.bench import __main__ as command
from geomx.bench.peers import Side


def test_a_ratio_says_how_many_times_better_ours_is():
    assert Case(2.0, 6.0, "s").ratio == 3
    assert Case(6.0, 2.0, "MB/s", better="more").ratio == 3


def test_the_last_line_is_one_json_object(monkeypatch, capsys):
    monkeypatch.setitem(bench.BUILT_IN, "fake", f"{__name__}:fake")
    assert command.main(["fake", "--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[-1]) == {
        "bench": "fake", "cases": {"one": {"ratio": 2.0, "ours": 1.0, "theirs": 2.0, "unit": "s"}}
    }  # fmt: skip
    assert lines[0].split() == ["case", "ours", "theirs", "unit", "times", "better"]


def fake(quick):
    return {"one": Case(1.0, 2.0, "s")} if quick else {}


ALONE = {"first": fake, "second": lambda quick: {"two": Case(1.0, 4.0, "s"), "three": Case(1.0, 1.0, "s")}}


def test_cases_run_by_themselves(monkeypatch, capsys):
    monkeypatch.setitem(bench.BUILT_IN, "fake", f"{__name__}:fake")
    assert command.main(["fake", "--list"]) == 0
    assert capsys.readouterr().out.split() == ["first", "second"]
    assert command.main(["fake", "--case", "second"]) == 0
    assert list(json.loads(capsys.readouterr().out.splitlines()[-1])["cases"]) == ["two", "three"]
    assert command.main(["fake", "--case", "third"]) == 2
    assert "bench fake: case 'third' given, there are: first, second" in capsys.readouterr().err


def test_names_are_listed_and_unknown_ones_refused(capsys):
    assert command.main(["--list"]) == 0
    listed = capsys.readouterr().out.split()
    assert {"accuracy", "codec", "kv", "trace", "traffic", "wan"} <= set(listed)  # and what plugins bring
    assert command.main(["nosuch"]) == 2
    assert f"'nosuch' given, there are: {', '.join(listed)}" in capsys.readouterr().err


class FakeSide(Side):
    def __init__(self, times, order):
        super().__init__()
        self.times, self.order = iter(times), order

    def seconds(self, case, rounds):
        self.order.append(self)
        return next(self.times)


def test_a_race_goes_in_turns_and_takes_medians():
    order = []
    ours, theirs = FakeSide([9, 1, 5, 2], order), FakeSide([9, 8, 6, 7], order)
    case = kv._race(ours, theirs, "large", 1, 3)
    assert (case.ours, case.theirs) == (2, 7)
    assert order == [ours, theirs] * 4


def test_the_cases_are_those_that_the_contract_names():
    assert list(kv.RACES) == ["large_tcp", "large_local", "small", "tiny"]


def test_a_side_that_dies_is_named_with_its_last_words():
    from geomx.bench.peers import Peer

    peer = Peer("our worker 0", ["-c", "raise SystemExit('no core here')"], {})
    with pytest.raises(RuntimeError, match="our worker 0 ended: no core here"):
        peer.answer()
    peer.stop()


def test_traffic_counts_what_travels_and_checks_what_was_pulled():
    pytest.importorskip("geomx_bsc", reason="the plugin isn't installed: pip install plugins/bsc")
    plain, sparse = (
        traffic.measure(traffic.Job(c, [30_000, 500], 3, 2)) for c in ({"name": "none"}, traffic.CASES["bsc_1pct"])
    )
    assert 30 < plain / sparse < 70
    assert set(traffic.CASES) == {"bsc_1pct_f32", "bsc_1pct", "bsc_01pct"}


def test_codecs_are_played_a_tensor(capsys):
    values = np.random.default_rng(1).standard_normal(50_000, np.float32)
    codec.play(values)
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows["none"][1] == "identity"
    assert float(rows["none"][3]) == 1.0
    if "fp16" in rows:
        assert float(rows["fp16"][3]) == 2.0
