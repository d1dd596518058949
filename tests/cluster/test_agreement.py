"""What all nodes must agree on: settings, optimizers, compression, and being there together."""

import dataclasses
import threading
import time

import numpy as np
import pytest

from geomx.kv import Error, Refused
from geomx.testing import LocalCluster


def test_explicit_settings_that_differ_name_both_nodes():
    def change(spec):
        own = {"a.worker": "8", "global_server0": "16"}
        name = spec.name.replace("party0", "a")[:8] if spec.role == "worker" else spec.name
        return dataclasses.replace(spec, settings={"bound": own[name]} if name in own else {})

    with pytest.raises(Error) as e:
        LocalCluster([1, 1], change=change, deadline_s=10).start()
    assert "bound" in str(e.value)
    assert "worker 0 of party party0 has 8" in str(e.value)
    assert "global server 0 has 16" in str(e.value)


def test_explicit_settings_of_one_nodes_are_everybodys():
    def change(spec):
        return dataclasses.replace(spec, settings={"bound": "8"} if spec.name == "party1.worker0" else {})

    with LocalCluster([1, 1], change=change) as cluster:
        assert set(cluster.nodes) == {
            "global_scheduler",
            "party0.scheduler",
            "party1.scheduler",
            "global_server0",
            "party0.server",
            "party1.server",
            "party0.worker0",
            "party1.worker0",
        }
        assert len(cluster.agreed) == 5
        assert all(settings["bound"] == "8" for settings in cluster.agreed.values())


def test_the_same_optimizer_is_accepted_from_all_and_another_is_refused():
    def work(worker):
        worker.set_optimizer("sgd", learning_rate=0.5)
        worker.barrier(world=True)
        if worker.global_rank == 1:
            with pytest.raises(Refused) as e:
                worker.set_optimizer("sgd", learning_rate=0.25)
            text = str(e.value)
            assert '"learning_rate":0.5' in text
            assert "worker 0 of party party1 asks for" in text
            assert "worker 0 of party party0 has set" in text or "worker 0 of party party1 has set" in text
        worker.init("k", np.zeros(3, np.float32))
        out = np.zeros(3, np.float32)
        worker.push_pull("k", np.ones(3, np.float32), out)
        return out.tolist()

    with LocalCluster([1, 1], global_servers=3) as cluster:
        assert cluster.run(work) == [[-1] * 3] * 2


def test_an_optimizer_after_the_first_push_is_refused():
    def work(worker):
        worker.push_pull("k", np.ones(3, np.float32))
        with pytest.raises(Refused, match="too late: the first push has ended configuring; set it before"):
            worker.set_optimizer("sgd")

    with LocalCluster([1, 1]) as cluster:
        cluster.run(work)


def test_an_optimizer_that_nobody_knows_ends_the_run_in_a_sentence():
    def work(worker):
        worker.set_optimizer("sgd", learning_rate=0.5)
        worker.init("k", np.zeros(3, np.float64))
        worker.push_pull("k", np.ones(3))

    with pytest.raises(Error, match="optimizer sgd on the servers takes float32 and halves, not float64"):  # noqa: SIM117
        with LocalCluster([1]) as cluster:
            cluster.run(work)


def test_compression_is_set_once():
    def work(worker):
        worker.set_gradient_compression({"type": "none"})
        worker.push_pull("k", np.ones(3, np.float32))
        with pytest.raises(Refused, match="too late|has set"):
            worker.node.configure("compression", '{"name":"other"}')

    with LocalCluster([2, 1]) as cluster:
        cluster.run(work)


def test_a_setting_of_the_configuration_refuses_another_one_of_a_script():
    def work(worker):
        with pytest.raises(Refused, match="optimizer: .* has set none, worker . of party party. asks for"):
            worker.set_optimizer("adam")

    with LocalCluster([1, 1], settings={"optimizer": "none"}) as cluster:
        cluster.run(work)


@pytest.mark.parametrize(
    "shape",
    [
        {"parties": [3, 2]},
        {"parties": [3, 2], "flat": True},
        {"parties": [1, 2], "central_workers": 2, "central_trains": True, "global_servers": 2},
    ],
    ids=["two tiers", "flat", "central"],
)
def test_a_world_barrier_waits_for_everybody(shape):
    count, lock = 0, threading.Lock()

    def work(worker):
        nonlocal count
        seen = []
        for round_ in range(1, 4):
            time.sleep(0.01 * worker.global_rank)
            with lock:
                count += 1
            worker.barrier(world=True)
            seen.append(count >= round_ * worker.num_all_workers)
            worker.barrier(world=True)
        return seen

    with LocalCluster(**shape) as cluster:
        assert cluster.run(work) == [[True] * 3] * 5


def test_a_partys_barrier_waits_for_that_party_only():
    counts, lock = {"party0": 0, "party1": 0}, threading.Lock()
    hold = threading.Event()

    def work(worker):
        if worker.party == "party1" and worker.rank == 0:
            assert hold.wait(10)  # party0 passes while party1 isn't complete
        for round_ in range(1, 4):
            with lock:
                counts[worker.party] += 1
            worker.barrier()
            assert counts[worker.party] >= round_ * worker.num_workers
            worker.barrier()
        if worker.party == "party0":
            hold.set()

    with LocalCluster([2, 2]) as cluster:
        cluster.run(work)


def test_barriers_count_members_not_messages():
    """One member's second barrier doesn't stand in for another's first."""

    def work(worker):
        if worker.rank == 0:
            first = threading.Thread(target=worker.barrier)
            first.start()
            time.sleep(0.05)
            second = threading.Thread(target=worker.barrier)
            second.start()
            time.sleep(0.05)
            assert first.is_alive()
            worker.push("there", np.zeros(1, np.float32))
            first.join(10)
            second.join(10)
            assert not first.is_alive()
            assert not second.is_alive()
        else:
            out = np.zeros(1, np.float32)
            worker.push_pull("there", np.zeros(1, np.float32), out)
            worker.barrier()
            worker.barrier()

    with LocalCluster([2]) as cluster:
        cluster.run(work)


def test_a_leave_shrinks_barriers():
    waits = threading.Event()

    def work(worker):
        worker.barrier(world=True)
        if worker.global_rank in (1, 3):
            if worker.global_rank == 1:
                waits.wait(10)
            worker.leave()
            return
        if worker.global_rank == 0:
            waits.set()
        worker.barrier(world=True)
        worker.barrier()
        worker.barrier(world=True)

    with LocalCluster([2, 1, 1]) as cluster:  # party2 leaves as a whole
        cluster.run(work)


def test_an_observing_master_neither_holds_barriers_nor_hangs_in_one():
    passed = threading.Event()

    def work(worker):
        worker.barrier(world=True)
        worker.barrier(world=True)
        passed.set()

    def master(worker):
        assert passed.wait(10)
        worker.barrier(world=True, timeout=5)
        worker.barrier(world=True, timeout=5)

    with LocalCluster([2, 1], central_workers=1) as cluster:
        cluster.run(work, master)


def test_ranks_and_counts():
    def work(worker):
        return (
            worker.party,
            worker.rank,
            worker.num_workers,
            worker.global_rank,
            worker.num_all_workers,
            worker.is_master_worker,
        )

    with LocalCluster([2, 1], central_workers=2, central_trains=True) as cluster:
        assert cluster.run(work) == [
            ("party0", 0, 2, 0, 5, False),
            ("party0", 1, 2, 1, 5, False),
            ("party1", 0, 1, 2, 5, False),
            ("central", 0, 2, 3, 5, True),
            ("central", 1, 2, 4, 5, False),
        ]
    with LocalCluster([2, 1], central_workers=1) as cluster:
        assert cluster.run(work, work)[:3] == [
            ("party0", 0, 2, 0, 3, False),
            ("party0", 1, 2, 1, 3, False),
            ("party1", 0, 1, 2, 3, False),
        ]
        assert cluster.master.is_master_worker
