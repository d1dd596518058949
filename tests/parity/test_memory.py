"""What a global server needs: with gradients only, less than three times the model above what it needs without one.

Real processes, two parties of one worker, a model of 100 MB; the peak is what the kernel says (VmHWM), which counts
what members of the same host lend the server too, for as long as it is mapped.
"""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from geomx.config import load
from geomx.launch.cluster import cluster
from geomx.testing.ports import kept_port

TENSORS, ELEMENTS, ROUNDS = 50, 500_000, 6
MODEL = TENSORS * ELEMENTS * 4

WORKER = """
import sys
import numpy as np
from geomx import node
from geomx.kv import Store
from geomx.spec import from_json

spec = from_json(sys.stdin.readline())
built = node.build(spec)
built.start()
store = Store(built.node, spec, closer=built.close)
print("joined", flush=True)
sys.stdin.readline()
keys = list(range(%(tensors)d))
values = [np.ones(%(elements)d, np.float32) for _ in keys]
store.init(keys, values)
store.pull(keys, values)
for _ in range(%(rounds)d):
    store.push_pull(keys, [np.ones(%(elements)d, np.float32) for _ in keys], values)
assert all((v == 2).all() for v in values)
print("done", flush=True)
sys.stdin.readline()
store.close()
"""


def peak(process):
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text).group(1)) * 1024


def specs(local):
    topology = {"name": "hips", "parties": 2, "workers": 1, "port": kept_port()}
    config = load({"topology": topology, "transport": {"name": "zmq", "local": local}})
    plan = cluster(config, token="memory", control="", host=lambda _: "127.0.0.1", log=lambda _: "")
    ports = {domain: topology["port"] if domain == "wan" else kept_port() for domain in plan.schedulers}
    schedulers = []
    for domain, spec in plan.schedulers.items():
        where = "wan" if domain == "wan" else "lan"
        at = dataclasses.replace(getattr(spec, where), scheduler_port=ports[domain])
        schedulers.append(dataclasses.replace(spec, **{where: at}, port=ports[domain]))
    nodes = [dataclasses.replace(s, settings={"optimizer": "none"}) for s in [*schedulers, *plan.located(ports)]]
    return [s for s in nodes if s.role != "worker"], [s for s in nodes if s.role == "worker"]


def start(arguments, spec):
    process = subprocess.Popen([sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdin.write(json.dumps(dataclasses.asdict(spec)) + "\n")
    process.stdin.flush()
    return process


def say(processes, expected):
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    assert [p.stdout.readline().strip() for p in processes] == [expected] * len(processes)


@pytest.mark.parametrize("local", [False, True], ids=["tcp", "shared memory"])
def test_the_global_servers_peak_is_below_three_models(local, record_property):
    others, workers = specs(local)
    script = WORKER % {"tensors": TENSORS, "elements": ELEMENTS, "rounds": ROUNDS}
    running = {s.name: start(["-m", "geomx.node", "-"], s) for s in others}
    training = [start(["-c", script], s) for s in workers]
    try:
        assert [p.stdout.readline().strip() for p in training] == ["joined"] * 2
        baseline = peak(running["global_server0"])
        say(training, "done")
        server = running["global_server0"]
        used = (peak(server) - baseline) / MODEL
        say(training, "")
        assert [p.wait(50) for p in (*training, *running.values())] == [0] * (len(training) + len(running))
    finally:
        for process in (*training, *running.values()):
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
    record_property("models", used)
    print(f"global server: {used:.2f} models above {baseline / 1e6:.0f} MB")
    assert used < 3
