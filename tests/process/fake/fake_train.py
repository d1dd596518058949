"""A worker that does nothing at a stated pace, and what FAKE_SCRIPT says at a stated step.

FAKE_SCRIPT: {"party0.worker1": {"step": 3, "do": "raise"}}; do: raise, kill, stop, exit, sleep, or end;
seeds: only in runs with these."""

import json
import os
import signal
import time

STEPS = int(os.environ.get("FAKE_STEPS", "5"))
STEP_S = float(os.environ.get("FAKE_STEP_S", "0.01"))


def run_worker(spec, node, emit):
    script = json.loads(os.environ.get("FAKE_SCRIPT", "{}")).get(spec.name, {})
    if spec.seed not in script.get("seeds", [spec.seed]):
        script = {}
    began, steps = time.monotonic(), 0
    for step in range(1, STEPS + 1):
        if script.get("step") == step and act(script["do"]) == "end":
            break
        time.sleep(STEP_S)
        steps = step
        row = {"step": step, "time": time.monotonic() - began, "loss": 1 / step, "samples": 8, "compute_s": STEP_S}
        emit("round", {**row, "wait_s": 0.0, **({"accuracy": step / STEPS} if step % 2 else {})})
    node.leave()
    return {"weights_hash": "abc", "accuracy": 0.98, "loss": 0.02, "rounds": steps, "samples": 8 * steps}


def act(what):
    if what == "raise":
        raise ValueError("boom")
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "exit":
        os._exit(0)
    if what == "sleep":
        time.sleep(3600)
    return what
