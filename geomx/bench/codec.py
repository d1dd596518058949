"""codec: encoding and decoding on one core of this machine. The core's kernels against what the memory allows; bsc
against finding the same elements with torch or numpy, and against adding the dense tensor. Before that, every installed
compression is played a tensor of normal values: error, ratio and speed of each of its codecs."""

import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx import _core, plugins
from geomx.api import CodecChoice, ConfigError
from geomx.bench import Case
from geomx.codecs import codec_of

ELEMENTS = 25_600_000
PART = 262_144  # elements of a part, as a run without a scheduler cuts them
RATIO = 0.01
LINK = 100e6 / 8  # bytes a second of codec_share
PARTIES = 2
TURNS, QUICK_TURNS = 15, 5
Values = NDArray[Any]
Call = Callable[[], Any]


def run(quick: bool) -> dict[str, Case]:
    """fp16_encode: float32 to float16, against memcpy of the same input. bsc_encode: momentum, residual, choice and
    bytes of 1 %, against the choice alone by torch.topk, or numpy.argpartition. bsc_decode: adding the 1 %, against
    adding all. codec_share: what one round of a tensor costs in encoding and decoding (up at a party, all parties' at
    the server, down at both), against the time that it saves a party's link of 100 Mbit/s, both ways."""
    turns = QUICK_TURNS if quick else TURNS
    values = np.random.default_rng(1).standard_normal(ELEMENTS, np.float32)
    play(values[: ELEMENTS // 4] if quick else values)
    cases = {"fp16_encode": _case(_fp16(values, turns))}
    if "bsc" in plugins.choices("compression"):
        choice = CodecChoice("bsc", {"ratio": RATIO, "momentum": 0.9})
        codec = codec_of(plugins.options("compression", {"name": "bsc"}), choice)
        cases["bsc_encode"] = _case(_bsc_encode(codec, values, turns))
        cases["bsc_decode"] = _case(_bsc_decode(codec, values, turns))
        cases["codec_share"] = _case(_share(codec, values, turns))
    return cases


def _case(seconds: tuple[float, float]) -> Case:
    return Case(seconds[0], seconds[1], "s")


def _fp16(values: Values, turns: int) -> tuple[float, float]:
    halves, copy = np.empty(len(values), np.float16), np.empty(len(values), np.float32)
    return _in_turns(lambda: _core.kernel("f32_to_f16", values, halves), lambda: np.copyto(copy, values), turns)


def _bsc_encode(codec: _core.Codec, values: Values, turns: int) -> tuple[float, float]:
    count = int(RATIO * len(values))
    if find_spec("torch") is not None:
        torch: Any = import_module("torch")
        torch.set_num_threads(1)
        magnitudes = torch.from_numpy(values).abs()
        print("bsc_encode: theirs is torch.topk of the magnitudes, one thread")
        theirs: Call = lambda: torch.topk(magnitudes, count, sorted=False)  # noqa: E731
    else:
        sizes = np.abs(values)
        print("bsc_encode: theirs is numpy.argpartition of the magnitudes; torch is not installed")
        theirs = lambda: np.argpartition(sizes, len(sizes) - count)  # noqa: E731
    return _in_turns(lambda: codec.encode_parts(values, PART), theirs, turns)


def _bsc_decode(codec: _core.Codec, values: Values, turns: int) -> tuple[float, float]:
    parts, total = codec.encode_parts(values, PART), np.empty(len(values), np.float32)
    total[:] = 0
    into = [total[start : start + PART] for start in range(0, len(total), PART)]

    def ours() -> None:
        for data, part in zip(parts, into, strict=True):
            codec.accumulate(data, part)

    return _in_turns(ours, lambda: _core.kernel("add_f32", total, values), turns)


def _share(codec: _core.Codec, values: Values, turns: int) -> tuple[float, float]:
    up, total = codec.encode_parts(values, PART), np.zeros(len(values), np.float32)

    def one_round() -> list[bytes]:
        total[:] = 0
        up[:] = codec.encode_parts(values, PART)
        for _ in range(PARTIES):
            _add(codec, up, total)
        down = codec.encode_parts(total, PART, slot=1, direction="down")
        _add(codec, down, total)
        return down

    seconds = float("inf")
    for _ in range(turns):
        began = time.perf_counter()
        down = one_round()
        seconds = min(seconds, time.perf_counter() - began)
    saved = (2 * values.nbytes - sum(map(len, up)) - sum(map(len, down))) / LINK
    print(f"codec_share: {seconds:.3f} s of {saved:.1f} s saved, {100 * seconds / saved:.2f} %")
    return seconds, saved


def _add(codec: _core.Codec, parts: list[bytes], total: Values) -> None:
    for number, data in enumerate(parts):
        codec.accumulate(data, total[number * PART :][:PART])


def _in_turns(ours: Call, theirs: Call, turns: int) -> tuple[float, float]:
    """The best of each, one after the other, so that what else the machine does hits both."""
    best = [float("inf"), float("inf")]
    for turn in range(turns + 1):
        for side, call in enumerate((ours, theirs)):
            began = time.perf_counter()
            call()
            if turn:
                best[side] = min(best[side], time.perf_counter() - began)
    return best[0], best[1]


# --- every installed compression --------------------------------------------------------------------------------------


def play(values: Values) -> None:
    """Prints how each compression, with its defaults, fares with this tensor between parties, on the way up."""
    print(f"{'compression':12} {'codec':8} {'error':>9} {'ratio':>7} {'encode':>10} {'decode':>10}   GB/s of float32")
    for name in plugins.choices("compression"):
        try:
            options = plugins.options("compression", {"name": name})
            choice = options.policy().choose("played", len(values), "float32", "wan", "up")
            error, ratio, encode_s, decode_s = fare(codec_of(options, choice), values)
        except ConfigError as e:
            print(f"{name:12} {e}")
            continue
        speeds = (values.nbytes / s / 1e9 for s in (encode_s, decode_s))
        print(f"{name:12} {choice.name:8} {error:9.2e} {ratio:7.1f} " + " ".join(f"{s:10.2f}" for s in speeds))


def fare(codec: _core.Codec, values: Values, rounds: int = 3) -> tuple[float, float, float, float]:
    """Error: what three rounds of the same values lack, relative to the values (2-norm), residuals not counted; ratio
    of float32's bytes to the encoded; best seconds of encoding and of adding what was decoded."""
    total, size = np.zeros(len(values), np.float32), 0
    encode_s = decode_s = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        parts = codec.encode_parts(values, PART)
        encoded = time.perf_counter()
        for number, data in enumerate(parts):
            codec.accumulate(data, total[number * PART :][:PART])
        decode_s = min(decode_s, time.perf_counter() - encoded)
        encode_s = min(encode_s, encoded - began)
        size += sum(map(len, parts))
    lacking = float(np.linalg.norm(total / rounds - values) / np.linalg.norm(values))
    return lacking, rounds * values.nbytes / size, encode_s, decode_s
