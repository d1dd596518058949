"""Tasks: what data they give, how workers share it, what they say when files are missing."""

import gzip
import importlib.util
import math

import numpy as np
import pytest

from geomx import plugins
from geomx.config import check_here, load
from geomx.config import task as config
from geomx.errors import ConfigError
from geomx.tasks import shapes, share
from geomx.tasks.digits import enlarged


def make(name, **options):
    chosen = plugins.options("task", {"name": name, **options})
    return plugins.target(chosen)(chosen)


def test_digits_has_one_test_set_and_no_sample_in_both():
    data = make("digits").data
    assert data.train_x.shape == (1437, 1, 8, 8) and data.test_x.shape == (360, 1, 8, 8)
    assert data.train_x.dtype == np.float32 and data.train_y.dtype == np.int32
    assert (data.train_x.min(), data.train_x.max()) == (0, 1)
    assert np.array_equal(data.test_y, make("digits").data.test_y)
    assert set(data.test_y) == set(range(10))


def test_digits_can_be_as_large_as_mnist_and_the_network_wider():
    task = make("digits", pixels=28, model="large")
    small = make("digits").data
    assert task.data.train_x.shape == (1437, 1, 28, 28) and task.data.train_x.dtype == np.float32
    assert task.hidden == (2440, 512, 2440, 512)
    assert task.data.train_x.mean() == pytest.approx(small.train_x.mean(), abs=0.01)
    constant = enlarged(np.full((1, 1, 8, 8), 0.5, np.float32), 28)
    assert np.allclose(constant, 0.5)


@pytest.mark.parametrize("split", ["iid", "class"])
@pytest.mark.parametrize("world", [1, 3, 4, 7])
def test_shares_are_of_one_size_and_disjoint(split, world):
    labels = make("digits").data.train_y
    shares = [share(labels, rank, world, split, seed=1) for rank in range(world)]
    assert {len(s) for s in shares} == {len(labels) // world}
    assert len(set(np.concatenate(shares).tolist())) == world * (len(labels) // world)
    assert not np.array_equal(shares[0], share(labels, 0, world, split, seed=2))


def test_split_by_class_leaves_no_worker_enough_labels_to_do_well_alone():
    data = make("digits").data
    for rank in range(4):
        seen = set(data.train_y[share(data.train_y, rank, 4, "class", seed=1)].tolist())
        assert np.isin(data.test_y, list(seen)).mean() < 0.6  # the best that this worker could reach alone


def test_batches_cover_the_share_each_epoch_in_an_order_of_their_own():
    task = make("digits", epochs=2, batch_size=100)
    steps = list(task.batches(1, 4, seed=3))
    assert [b.samples for b in steps] == [100, 100, 100, 59] * 2
    first, second = (np.concatenate([b.y for b in steps[i : i + 4]]) for i in (0, 4))
    assert sorted(first) == sorted(second) and not np.array_equal(first, second)
    again = list(task.batches(1, 4, seed=3))
    assert all(np.array_equal(a.x, b.x) for a, b in zip(steps, again))
    assert len(list(make("digits", epochs=9, max_rounds=5).batches(0, 2, 1))) == 5
    with pytest.raises(ValueError, match="worker 4 of 4"):
        next(task.batches(4, 4, 1))


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + b"".join(int(d).to_bytes(4, "big") for d in array.shape)
    return head + array.astype(np.uint8).tobytes()


@pytest.mark.parametrize("task", ["mnist", "fashion_mnist"])
@pytest.mark.parametrize("packed", [True, False])
def test_idx_files_are_read(tmp_path, task, packed):
    images, labels = np.arange(3 * 28 * 28).reshape(3, 28, 28) % 256, np.array([3, 1, 2])
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            path = tmp_path / f"{part}-{kind}-ubyte{'.gz' * packed}"
            path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    data = make(task, data_dir=str(tmp_path)).data
    assert data.train_x.shape == (3, 1, 28, 28) and data.test_y.tolist() == [3, 1, 2]
    assert np.allclose(data.train_x[0, 0, 1, 2] * 255, 30)


def test_cifar_files_are_read(tmp_path):
    record = bytes([7]) + bytes(range(256)) * 12
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (tmp_path / f"{name}.bin").write_bytes(record * 2)
    data = make("cifar10", data_dir=str(tmp_path)).data
    assert data.train_x.shape == (10, 3, 32, 32) and data.test_y.tolist() == [7, 7]


@pytest.mark.parametrize("task", ["mnist", "fashion_mnist", "cifar10"])
def test_missing_files_are_named_with_where_to_put_them(tmp_path, task):
    with pytest.raises(ConfigError, match=rf"is not in {tmp_path}; get it from https://.* task.data_dir=FOLDER"):
        make(task, data_dir=str(tmp_path))


BROKEN = [b"", b"\0\0\x08", b"<html>", idx(np.zeros((2, 2)))[:-1], b"\0\0\x08\x04" + b"\0" * 16]


@pytest.mark.parametrize("bad", BROKEN)
def test_broken_files_are_named(tmp_path, bad):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(bad)
    with pytest.raises(ConfigError, match="train-images-idx3-ubyte: "):
        make("mnist", data_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("model", "tensors", "parameters"),
    [("resnet50", 161, 25_557_032), ("vgg16", 32, 138_357_544), ("bert_base", 199, 109_482_240)],
)
def test_synthetic_shapes_are_the_models(model, tensors, parameters):
    found = shapes.MODELS[model]()
    assert len(found) == len(dict(found)) == tensors
    assert sum(math.prod(shape) for _, shape in found) == parameters


def test_synthetic_steps_have_no_data():
    task = make("synthetic", max_rounds=3, compute_ms=20)
    assert [b.x for b in task.batches(0, 2, 1)] == [None] * 3 and task.compute_s == 0.02
    assert task.data is None and isinstance(config.Synthetic.target, str)


@pytest.mark.parametrize("task", ["mnist", "fashion_mnist", "cifar10"])
def test_missing_files_are_told_before_anything_starts(task, tmp_path):
    with pytest.raises(ConfigError, match=rf"is not in {tmp_path}; get it from https://"):
        check_here(load({"task": {"name": task, "data_dir": str(tmp_path)}}))
    elsewhere = load({"task": {"name": task}, "topology": {"name": "hips", "hosts": {"central": "10.0.0.1"}}})
    check_here(elsewhere)  # other machines may have them


@pytest.mark.skipif(not importlib.util.find_spec("mxnet"), reason="mxnet is not installed")
def test_an_optimizer_that_nobody_knows_is_told_before_anything_starts():
    check_here(load({"sync": {"name": "fsa", "optimizer": {"name": "nag"}}}))
    with pytest.raises(ConfigError, match=r"sync.optimizer.name: .* Cannot find optimizer none; .*sgd, adam, dcasgd"):
        check_here(load({"sync": {"name": "fsa", "optimizer": {"name": "none"}}}))
