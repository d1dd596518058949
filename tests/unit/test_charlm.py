"""task=charlm: samples stay inside their file, files are shared fairly, and both frameworks learn from them."""

import numpy as np
import pytest
from test_train import _need_mxnet, train

from geomx import plugins
from geomx.errors import ConfigError
from geomx.frameworks.numpy_text import NextSymbol
from geomx.tasks import charlm, share


def make(**options):
    chosen = plugins.options("task", {"name": "charlm", **options})
    return plugins.target(chosen)(chosen)


@pytest.fixture
def folder(tmp_path):
    """Ten files; all tests are about which of them is where, so each has a letter of its own."""
    for i in range(10):
        (tmp_path / f"{i}.txt").write_text(chr(ord("a") + i) * 300)
    return tmp_path


def spoken(symbols):
    return "".join(charlm.ALPHABET[s - 1] if s else "?" for s in symbols)


def test_the_standard_library_is_the_same_text_every_time():
    data, again = make(characters=20_000).data, make(characters=20_000).data
    assert data.train_x.shape == (20_000, 16) and data.test_x.shape == (1000, 16)
    assert data.train_x.dtype == np.uint8 and data.train_y.dtype == np.int32
    assert np.array_equal(data.train_x, again.train_x) and np.array_equal(data.test_y, again.test_y)
    assert data.train_y.max() < data.num_classes == 97
    assert "return" in spoken(data.train_y)


def test_a_sample_is_what_stands_before_its_label_in_the_same_file(tmp_path):
    (tmp_path / "one.txt").write_text("abcdefgh" * 200)
    (tmp_path / "two.txt").write_text("abcdefgh" * 200)
    data = make(text=str(tmp_path), characters=1000, context=3).data
    assert [spoken(x) for x in data.train_x[:5]] == ["???", "??a", "?ab", "abc", "bcd"]
    assert spoken(data.train_y[:5]) == "abcde"


def test_no_file_is_both_trained_on_and_tested_on(folder):
    data = make(text=str(folder), characters=1500).data
    assert len(data.train_y) == 1500 and len(data.test_y) == 75
    assert not set(data.train_y) & set(data.test_y)


def test_split_by_class_gives_each_worker_files_of_its_own(folder):
    data = make(text=str(folder), characters=1200, split="class").data
    seen = [set(data.train_y[share(data.labels_to_split_by, r, 4, "class", seed=1)]) for r in range(4)]
    assert [len(s) for s in seen] == [1] * 4 and len(set().union(*seen)) == 4
    mixed = [set(data.train_y[share(data.labels_to_split_by, r, 4, "iid", seed=1)]) for r in range(4)]
    assert [len(s) for s in mixed] == [4] * 4


def test_what_is_not_in_the_alphabet_is_symbol_0(tmp_path):
    (tmp_path / "a.txt").write_bytes("né\t\r\n".encode() * 2000)
    (tmp_path / "b.txt").write_bytes("né\t\r\n".encode() * 2000)
    assert spoken(make(text=str(tmp_path), characters=1000).data.train_y[:4]) == "n??\n"


@pytest.mark.parametrize("name", ["none", "empty"])
def test_missing_text_is_named(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=rf"task.text: .*{tmp_path / name}"):
        make(text=str(tmp_path / name))


def test_one_short_file_is_too_little(tmp_path):
    (tmp_path / "a.txt").write_text("short")
    with pytest.raises(ConfigError, match="too little text"):
        make(text=str(tmp_path / "a.txt"))


def test_gradients_of_the_table_and_the_layers_are_right():
    data = make(characters=1000, context=4).data
    x, y = data.train_x[100:120], data.train_y[100:120]
    model = NextSymbol(data, 1, None)
    model.backward(x, y, 1.0)
    for weight, gradient in zip(model.weights, model.gradients):
        i = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        eps, kept = np.float32(1e-2), weight[i]
        losses = []
        for moved in (kept + eps, kept - eps):
            weight[i] = moved
            losses.append(model.evaluate(x, y)[0])
        weight[i] = kept
        assert abs((losses[0] - losses[1]) / (2 * eps) - gradient[i]) < 0.02 * abs(gradient[i]) + 1e-3


@pytest.mark.parametrize("framework", ["numpy", "mxnet"])
def test_both_frameworks_learn(framework):
    if framework == "mxnet":
        _need_mxnet()
    options = {"name": "charlm", "characters": 40_000, "batch_size": 64, "epochs": 1, "split": "class"}
    _, results, rows = train(workers=2, framework=framework, **options)
    assert results[0]["accuracy"] > 0.28, results  # always a space: 0.23
    assert results[0]["test_loss"] < 3.2 < 4.0 < rows[0][0]["loss"]
    assert results[0]["weights_hash"] == results[1]["weights_hash"]
