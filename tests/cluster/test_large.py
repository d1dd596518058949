"""A tensor of more than 2 GiB: whatever counts bytes in 32 bits would show."""

import ctypes

import numpy as np
import pytest

from geomx.testing import LocalCluster

ELEMENTS = (2**31 + 2**27) // 4 + 3  # 2.1 GiB of float32, and not a multiple of anything
NEEDED = 16 * 2**30


def available():
    with open("/proc/meminfo") as info:
        return next(int(line.split()[1]) * 1024 for line in info if line.startswith("MemAvailable"))


def test_a_tensor_of_more_than_two_gib():
    """In two parts: the first is larger than 2 GiB itself, the second begins behind 2 GiB."""
    if available() < NEEDED:
        pytest.skip(f"needs {NEEDED >> 30} GiB of free memory")
    config = {"scheduler": {"fifo": {"part_elements": 2**29 + 1}}, "topology": {"bigarray_bound": 2**40}}

    def work(worker):
        array = np.empty(ELEMENTS, np.float32)
        array[:] = 3
        array[-1], array[2**29] = 7, 11  # behind 2 GiB
        worker.push_pull("k", array)
        return float(array[-1]), float(array[2**29]), float(array[0]), bool((array[1 : 2**29] == 3).all())

    with LocalCluster([1], flat=True, config=config, deadline_s=90) as cluster:
        assert cluster.run(work) == [(7, 11, 3, True)]
        assert cluster.counters()["wan.up_payload_bytes"] == ELEMENTS * 4
    ctypes.CDLL(None).malloc_trim(0)
