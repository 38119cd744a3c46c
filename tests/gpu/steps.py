"""steps: training steps of reel-train that are timed, and the device's memory behind them."""
import json
import math
import os
import statistics
import subprocess

import machine
from place import Skipped, Wrong

SMOKE = {"schema": "reel.model/1", "name": "dit-smoke", "family": "dit", "layers": 2, "hidden": 32,
         "heads": 2, "ffn": 64, "text_width": 8, "text_len": 4, "adaln": "full", "patch_t": 1,
         "patch_h": 2, "patch_w": 2, "latent_channels": 16}


def idle_bytes(place):
    """What a process that has opened the device takes of its memory, before it asks for any."""
    told = json.loads(place.must([place.program("tests/gpu/check"), "device"]))
    return told["total_bytes"] - told["free_bytes"] - told["taken_bytes"]


def layers_of(place, model, layers):
    """A model with fewer layers than its profile has, as a file."""
    if place.shim:
        made = dict(SMOKE)
    else:
        with open(os.path.join(machine.ROOT, "profiles", "models", model + ".json")) as f:
            made = {**json.load(f)}
        made.update(layers=layers or made["layers"])
    path = os.path.join(place.folder("model-" + model), "model.json")
    with open(path, "w") as f:
        json.dump(made, f)
    return path


class Point:
    """One thing that is trained: a model at a size of sample."""

    def __init__(self, model, seq, gbs, mbs=1, layers=None, dtype="bf16", moments="bf16",
                 recompute="selective"):
        self.model, self.seq, self.gbs, self.mbs, self.layers = model, seq, gbs, mbs, layers
        self.dtype, self.moments, self.recompute = dtype, moments, recompute

    def trial(self, place, n, env=None):
        """Runs n steps. Returns reel-train's object."""
        folder = place.folder("steps")
        gbs, mbs = (min(self.gbs, 2), 1) if place.shim else (self.gbs, self.mbs)
        run = {"schema": "reel.run/1", "name": "visit",
               "model": layers_of(place, self.model, self.layers),
               "numerics": {"dtype": self.dtype, "moments": self.moments},
               "stages": [{"data": "synthetic:" + ("1x2x2" if place.shim else self.seq),
                           "gbs": gbs, "steps": 100000}]}
        path = os.path.join(folder, "run.json")
        with open(path, "w") as f:
            json.dump(run, f)
        argv = [place.program("reel-train"), "train", "--trial", "--run", path, "--run-dir",
                os.path.join(folder, "run"), "--device", "cuda", "--steps", str(n), "--layout",
                f"mbs={mbs},recompute={self.recompute}"]
        p = place.run(argv, env)
        if "no memory for" in p.stderr:
            raise Skipped("the device has too little memory: " + p.stderr.strip()[-300:])
        if p.returncode != 0:
            raise subprocess.CalledProcessError(p.returncode, argv, p.stdout, p.stderr)
        return json.loads(p.stdout.splitlines()[-1])


def peak_of(device, dtype):
    """The datasheet's dense peak of a GPU, by its name, or None."""
    for name in ("h100", "h200", "b200", "a100"):
        if name in device.lower():
            with open(os.path.join(machine.ROOT, "profiles", "gpus", name + "-sxm.json")) as f:
                return json.load(f)["peak_flops"].get(dtype)
    return None


def timed(point, seconds=10, rounds=5):
    """A case: so many rounds of so many seconds in all; the median of the rounds' mean steps."""
    def ask(place):
        first = point.trial(place, 3)
        wanted = 0.1 if place.shim else seconds
        steps = 3 if place.shim else max(5, math.ceil(wanted / rounds / first["min_step_s"]) + 2)
        made = [point.trial(place, steps) for _ in range(1 if place.shim else rounds)]
        return summary(machine.facts(place)["device"], point, made)
    return ask


def summary(device, point, made):
    each = sorted(x["step_s"] for x in made)
    step = statistics.median(each)
    least = min(x["min_step_s"] for x in made) if len(made) == 1 else each[0]
    most = max(x["max_step_s"] for x in made) if len(made) == 1 else each[-1]
    peak, flops = peak_of(device, point.dtype), made[0]["model_flops"]
    return {"value": made[0]["tokens"] / step, "unit": "tokens/s", "spread": (most - least) / step,
            "step_s": step, "rounds": [x["step_s"] for x in made], "steps": made[0]["steps"],
            "tokens": made[0]["tokens"], "model_flops": flops, "peak": peak, "peak_name": "MFU",
            "share": flops / step / peak if peak else None, "loss": made[0]["loss"],
            "device_planned_bytes": made[0]["device_bytes"],
            "device_used_bytes": max(x["used_bytes"] for x in made)}


def planned(point, most=0.02):
    """Returns a case that compares the device's memory in use after the last step with the plan. It
    is that by cudaMemGetInfo, less what an idle process takes. A run takes all before its first
    step."""
    def ask(place):
        made, idle = point.trial(place, 4), idle_bytes(place)
        used, plan = made["used_bytes"] - idle, made["device_bytes"]
        off = used / plan - 1
        measured = {"value": off * 100, "unit": "% off the plan", "used_bytes": used,
                    "plan_bytes": plan, "idle_bytes": idle}
        if abs(off) > most:
            raise Wrong(f"{used:.0f} bytes in use, {plan:.0f} planned: {100 * off:.1f} % off",
                        measured)
        return measured
    return ask
