"""A worker of the tests about faults: some rounds of one tensor, without any framework.

python rounds.py ROUNDS SECONDS_A_ROUND [SECONDS_BEFORE_LEAVING [ROUND=FILE ...]]: a round that waits for a file
"""

import sys
import time
from pathlib import Path

import numpy as np

from geomx import connect

rounds, pause_s = int(sys.argv[1]), float(sys.argv[2])
linger_s = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
held = {int(number): Path(file) for number, _, file in (word.partition("=") for word in sys.argv[4:])}

with connect.store() as store:
    ones, out = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    store.init("w", ones)
    print("joined", store.global_rank, flush=True)
    for number in range(1, rounds + 1):
        time.sleep(pause_s)
        while number in held and not held[number].exists():
            time.sleep(0.02)
        store.push_pull("w", ones, out)
        print("round", number, out[0], flush=True)
    time.sleep(linger_s)
print("left", flush=True)
