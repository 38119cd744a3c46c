"""runs: small trainings of reel-train, and what becomes of their checkpoints."""
import json
import os
import re
import subprocess

from place import Wrong

STEPS = 4
NANO = {"schema": "reel.model/1", "name": "dit-nano", "family": "dit", "layers": 4, "hidden": 32,
        "heads": 4, "ffn": 64, "text_width": 8, "text_len": 4, "adaln": "full", "patch_t": 1,
        "patch_h": 2, "patch_w": 2, "latent_channels": 16}


class Runs:
    """The runs of one case, in a folder of their own, all of one run file."""

    def __init__(self, place, name, dtype="f64", lr=1e-3, more=None, options=(),
                 steps=STEPS):
        self.place, self.dir, self.options = place, place.folder(name), list(options)
        model = os.path.join(self.dir, "nano.json")
        if place.shim:
            with open(model, "w") as f:
                json.dump(NANO, f)
        run = {"schema": "reel.run/1", "name": "visit",
               "model": model if place.shim else "dit-tiny", "random": {"seed": "5"},
               "numerics": {"dtype": dtype}, "schedule": {"warmup_steps": 0},
               "adamw": {"lr": lr, "ema_decay": 0.9},
               "checkpoint": {"every_steps": 2, "keep": 5},
               "stages": [{"data": "synthetic:1x4x4" if place.shim else "synthetic:2x8x8",
                           "gbs": 4, "steps": steps}], **(more or {})}
        self.file = os.path.join(self.dir, "run.json")
        with open(self.file, "w") as f:
            json.dump(run, f)

    def argv(self, name, device, *more):
        return [self.place.program("reel-train"), "train", "--run", self.file, "--run-dir",
                os.path.join(self.dir, name), "--quiet", "--device", device, *self.options, *more]

    def tried(self, name, device):
        """Trains, and returns how that ended."""
        return self.place.run(self.argv(name, device))

    def train(self, name, *more, device="cuda", layout=None, env=None):
        argv = self.argv(name, device, *more)
        argv += ["--layout", layout] if layout else []
        n = ranks_of(layout)
        if n == 1:
            return self.place.must(argv, env)
        return self.place.ranks(n, argv + (["--share-gpu"] if device == "cuda" else []), env)

    def stop(self, name, after, **options):
        """Trains some steps and saves, which ends with status 75 unless it is asked not to."""
        self.train(name, "--steps", str(after), "--stop-ok", **options)

    def step(self, name, step=STEPS):
        return os.path.join(self.dir, name, "ckpt", f"step-{step:08d}")

    def apart(self, one, other, tol, step=STEPS):
        """The largest relative difference of a tensor; raises Wrong when it is above tol."""
        argv = [self.place.program("reel-train"), "ckpt", "diff", self.step(one, step),
                self.step(other, step), "--tol", repr(tol)]
        p = self.place.run(argv)
        if p.returncode not in (0, 1):
            raise subprocess.CalledProcessError(p.returncode, argv, p.stdout, p.stderr)
        said = (p.stdout.strip().splitlines() or [p.stderr.strip()])[-1]
        if p.returncode == 1:
            raise Wrong(f"{one} and {other} differ: {said}")
        return said

    def same(self, one, other, step=STEPS):
        """Raises Wrong unless all files of two checkpoints have the same bytes."""
        a, b = self.step(one, step), self.step(other, step)
        names = sorted(os.listdir(a))
        if names != sorted(os.listdir(b)) or not names:
            raise Wrong(f"{one} and {other} have other files")
        for name in names:
            with open(os.path.join(a, name), "rb") as f, open(os.path.join(b, name), "rb") as g:
                if f.read() != g.read():
                    raise Wrong(f"{one} and {other}: {name} differs at step {step}")
        return f"{len(names)} files of the same bytes"

    def weights(self, name, step):
        """The bytes of a checkpoint's weights alone."""
        out = os.path.join(self.dir, name + ".safetensors")
        self.place.must([self.place.program("reel-train"), "ckpt", "export", self.step(name, step),
                         "--safetensors", out])
        with open(out, "rb") as f:
            return f.read()


def ranks_of(layout):
    n = 1
    for axis, count in re.findall(r"\b(tp|cp|pp|dp)=(\d+)", layout or ""):
        n *= int(count)
    return n
