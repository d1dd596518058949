"""task=charlm: which character comes next. Without files of one's own, the text is the standard library's sources.

A sample is `context` symbols and the one that follows, all in one file: at a file's beginning the context is filled
with symbol 0, which also stands for every character that isn't in the alphabet.
"""

import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from geomx.errors import ConfigError
from geomx.tasks import Data, DataTask

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))  # symbols 1.. in this order
KINDS = ("*.py", "*.txt", "*.md")
TEST_SHARE = 20  # one character is tested on for so many that are trained on
LONGEST_FILE = 10_000  # characters of a file that are read, so that a corpus is made of many
_ORDER_SEED = 20  # fixed: which files are tested on doesn't depend on the run's seed

Symbols = NDArray[np.uint8]


def make(options: Any) -> DataTask:
    """options: `geomx.config.task.Charlm`. Raises ConfigError where there is no text, or too little."""
    return DataTask(options, load(options.text, options.characters, options.context))


def load(text: str, characters: int, context: int) -> Data:
    """x: uint8 (samples, context); y: int32 (samples,), both below len(ALPHABET) + 1. `groups` numbers the files."""
    texts = [t for t in map(_symbols, _files(text)) if len(t)]
    order = np.random.default_rng(_ORDER_SEED).permutation(len(texts))
    test, used = _take((texts[i] for i in order), characters // TEST_SHARE)
    train, _ = _take((texts[i] for i in order[used:]), characters)
    if not train:
        raise ConfigError(
            f"task charlm: {text or 'the standard library'} has too little text: some is needed to train on besides "
            f"the {characters // TEST_SHARE} characters to test on; give more, or set task.characters lower"
        )
    train_x, train_y = _samples(train, context)
    test_x, test_y = _samples(test, context)
    files = np.repeat(np.arange(len(train), dtype=np.int32), [len(t) for t in train])
    return Data(train_x, train_y, test_x, test_y, len(ALPHABET) + 1, is_text=True, groups=files)


def _files(text: str) -> list[str]:
    """Contents, in the order of their names; of a single file its pieces."""
    where = Path(text).expanduser() if text else Path(sysconfig.get_path("stdlib"))
    paths = sorted(p for kind in KINDS for p in where.glob(kind) if p.is_file()) if where.is_dir() else [where]
    try:
        contents = [p.read_text(encoding="utf-8", errors="replace") for p in paths]
    except OSError as e:
        raise ConfigError(f"task.text: {e.filename} can't be read: {e.strerror}") from None
    if not any(contents):
        raise ConfigError(f"task.text: no text in {where} ({', '.join(KINDS)}); say where some is: task.text=FOLDER")
    if len(contents) > 1:
        return [c[:LONGEST_FILE] for c in contents]
    return [contents[0][start : start + LONGEST_FILE] for start in range(0, len(contents[0]), LONGEST_FILE)]


def _symbols(text: str) -> Symbols:
    table = np.zeros(128, np.uint8)
    table[[ord(c) for c in ALPHABET]] = np.arange(1, len(ALPHABET) + 1)
    codes = np.frombuffer(text.encode("ascii", errors="replace").replace(b"\r\n", b"\n"), np.uint8)
    found: Symbols = table[codes]
    return found


def _take(texts: Iterable[Symbols], characters: int) -> tuple[list[Symbols], int]:
    """The first texts, the last of them cut, that have so many characters, and how many they are."""
    taken: list[Symbols] = []
    for text in texts:
        if characters <= 0:
            break
        taken.append(text[:characters])
        characters -= len(text)
    return taken, len(taken)


def _samples(texts: Sequence[Symbols], context: int) -> tuple[Symbols, NDArray[np.int32]]:
    before = np.zeros(context, np.uint8)
    windows = [sliding_window_view(np.concatenate([before, t[:-1]]), context) for t in texts]
    return np.concatenate(windows), np.concatenate(texts).astype(np.int32)
