"""The ledger of a run: every byte in one row, whoever ended how."""

import pytest

from geomx.launch.accounts import SENT_FILE, WORK_FILE, Accounts, read
from geomx.spec import DomainSpec, NodeSpec

LAN = DomainSpec(scheduler_host="127.0.0.1", scheduler_port=1, num_servers=1, num_members=2)
NODES = [NodeSpec(role="worker", name="a.worker0", party="a", rank=0, lan=LAN),
         NodeSpec(role="local_server", name="a.server", party="a", rank=0, lan=LAN, wan=LAN),
         NodeSpec(role="global_server", name="global_server0", party="central", rank=0, wan=LAN)]  # fmt: skip
SENT = [("lan", "worker 0 of party a", "fc", "down", "RAW", 3, 3000, 30),
        ("wan", "global server 0", "fc", "up", "BSC", 3, 500, 60),
        ("wan", "global server 0", "", "up", "", 2, 0, 40),
        ("wan", "the scheduler", "", "control", "", 1, 5, 5)]  # fmt: skip


@pytest.fixture
def accounts():
    made = Accounts(NODES, price=2e6, currency="EUR")
    made.take("a.server", SENT, [("wan", "fc", 0.5, 0.0, 0.0, 0.25, 2, 1), ("lan", "fc", 0.0, 0.0, 0.0, 0.0, 0, 0)])
    return made


def test_rows_name_both_ends_of_a_link_and_what_passed(accounts):
    largest = accounts.sent[0]
    assert (largest["sender"], largest["receiver"], largest["key"]) == ("a.server", "a.worker0", "fc")
    assert (largest["payload_bytes"], largest["framing_bytes"], largest["bytes"]) == (3000, 30, 3030)
    assert {r["receiver"] for r in accounts.sent} == {"a.worker0", "global_server0", "the scheduler"}


def test_only_what_passes_between_parties_costs(accounts):
    totals = accounts.totals()
    assert totals["cost"] == pytest.approx((560 + 40 + 10) / 1e9 * 2e6)
    assert (totals["price_per_gb"], totals["currency"]) == (2e6, "EUR")
    assert sum(r["cost"] for r in accounts.sent if r["tier"] == "lan") == 0


def test_totals_by_tier_direction_and_codec(accounts):
    wan = accounts.totals()["wan"]
    assert wan["up"] == {"bytes": 600, "payload_bytes": 500, "framing_bytes": 100}
    assert wan["control"]["bytes"] == 10 and wan["down"]["bytes"] == 0
    assert wan["payload_by_codec"] == {"BSC up": 500}
    assert (wan["encode_s"], wan["decode_s"]) == (0.5, 0.25)
    assert (wan["dropped_parts"], wan["returned_parts"]) == (2, 1)


def test_a_node_that_was_killed_has_the_bytes_that_it_last_told(accounts):
    accounts.estimate("a.worker0", {"lan.up_bytes": 900.0, "lan.up_payload_bytes": 880.0, "lan.init_bytes": 7.0})
    accounts.estimate("a.server", {"lan.up_bytes": 1e9})  # it has said more than that
    assert accounts.totals()["lan"]["up"] == {"bytes": 900, "payload_bytes": 880, "framing_bytes": 20}
    assert accounts.totals()["lan"]["init"]["bytes"] == 7


def test_the_files_hold_what_was_told(accounts, tmp_path):
    accounts.write(tmp_path)
    assert read(tmp_path / SENT_FILE) == accounts.sent
    assert read(tmp_path / WORK_FILE) == accounts.work and len(accounts.work) == 1
    assert read(tmp_path / "none.csv") == []
