"""Steps of workers become rows, counters become sums."""

from geomx.launch.ledger import Ledger


def row(step, loss=1.0, **more):
    return {"step": step, "time": step / 10, "loss": loss, "samples": 2, "compute_s": 0.1, "wait_s": 0.2, **more}


def test_a_row_waits_for_all_workers():
    ledger = Ledger(["a", "b"])
    assert ledger.step("a", row(1, 1.0)) == []
    (complete,) = ledger.step("b", row(1, 3.0, time=0.5))
    assert complete["step"] == 1
    assert complete["loss"] == 2.0
    assert complete["samples"] == 4
    assert complete["time"] == 0.5
    assert complete["compute_s"] == 0.2


def test_rows_come_in_order_and_once():
    ledger = Ledger(["a", "b"])
    for step in (1, 2, 3):
        ledger.step("a", row(step))
    assert [r["step"] for r in ledger.step("b", row(2))] == [1, 2]
    assert [r["step"] for r in ledger.step("b", row(3))] == [3]


def test_who_has_left_is_not_waited_for():
    ledger = Ledger(["a", "b"])
    ledger.step("a", row(1))
    ledger.step("b", row(1))
    ledger.step("a", row(2))
    assert [r["step"] for r in ledger.left("b")] == [2]
    assert [r["step"] for r in ledger.step("a", row(3))] == [3]
    assert ledger.left("a") == []


def test_the_last_rows_are_told_when_all_have_left():
    ledger = Ledger(["a", "b"])
    ledger.step("a", row(1))
    ledger.step("b", row(1))
    ledger.step("a", row(2))
    ledger.left("a")
    assert [r["step"] for r in ledger.left("b")] == [2]


def test_accuracy_only_where_it_was_evaluated():
    ledger = Ledger(["a", "b"])
    ledger.step("a", row(1, accuracy=0.5))
    (complete,) = ledger.step("b", row(1, accuracy=None))
    assert complete["accuracy"] == 0.5
    ledger.step("a", row(2))
    (complete,) = ledger.step("b", row(2))
    assert "accuracy" not in complete


def test_counters_are_summed_by_the_newest_of_each_node():
    ledger = Ledger(["a"])
    ledger.count("a", {"wan.up_bytes": 1.0})
    ledger.count("a", {"wan.up_bytes": 5.0, "encode_s": 0.5})
    ledger.count("server", {"wan.up_bytes": 10.0, "wan.init_bytes": 3.0, "lan.messages": 2.0})
    traffic = ledger.traffic()
    assert traffic["wan"]["up_bytes"] == 15
    assert traffic["wan"]["init_bytes"] == 3
    assert traffic["lan"]["messages"] == 2
    (complete,) = ledger.step("a", row(1))
    assert (complete["wan_up_bytes"], complete["encode_s"]) == (15, 0.5)
    (complete,) = ledger.step("a", row(2))
    assert complete["encode_s"] == 0


def test_who_waits():
    ledger = Ledger(["a", "b", "c"])
    ledger.step("a", row(1))
    ledger.step("b", row(1))
    ledger.step("a", row(2))
    assert ledger.waiting() == ["a", "b"]
    assert ledger.last_step() == 2
    assert ledger.last_step("c") == 0
