"""What the benchmark makes of what it measures, and one round of it."""

import pytest

pytest.importorskip("geomx_multigps", reason="the plugin isn't installed: pip install plugins/multigps")

from geomx_multigps import bench


def test_one_server_is_the_rival(monkeypatch):
    pytest.importorskip("geomx_bsc")
    monkeypatch.setattr(bench, "measure", lambda servers, *others: [8.0 / servers, 8.0 / servers, 99.0])
    cases = bench.run(quick=True)
    assert {name: case.ratio for name, case in cases.items() if name != "balance"} == {
        "servers_2": 2.0, "servers_4": 4.0, "servers_2_bsc": 2.0, "servers_4_bsc": 4.0
    }  # fmt: skip
    assert cases["balance"].ours <= 1.05 < cases["balance"].theirs


def test_every_server_has_a_link_of_its_own():
    assert len(bench.measure(2, "none", 50e6, 1)) == 1
    wan = bench._links(2, 50e6)
    assert [wan.rate("party0", f"global_server{i}") for i in range(2)] == [50e6, 50e6]
