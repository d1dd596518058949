"""What the benchmark makes of what it measures."""

import pytest

pytest.importorskip("geomx_p3", reason="the plugin isn't installed: pip install plugins/p3")

from geomx_p3 import bench


def test_the_median_of_each_side_counts(monkeypatch, capsys):
    times = {"all": [1.0, 2.0, 9.0], "none": [4.0], "backward": [3.0]}
    monkeypatch.setattr(bench, "measure", lambda scheduler, overlap, iterations, options: times[overlap])
    cases = bench.shaper(quick=True)
    assert {name: case.ratio for name, case in cases.items() if name != "bound_share"} == {
        "over_none": 2.0, "over_backward": 1.5
    }  # fmt: skip
    assert cases["bound_share"].ratio == pytest.approx((bench.COMPUTE_S + 0.05) / 2)
    assert "13 round trips" in capsys.readouterr().out
