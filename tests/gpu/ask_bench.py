"""ask_bench: how fast. The card's ceilings first and last, for it may throttle between; then steps,
the most telling first."""
import json
import os

import machine
from place import Case, Skipped
from steps import Point, peak_of, timed

FORMULA = "tokens of a step / median of {} x mean step; MFU = flops_reel/3 of a step / step / " \
          "datasheet's dense peak"
COPY = ("copy", (2 ** 30,), (2 ** 16,))
GEMM = ("gemm", (8192, 16384, 4096), (32, 32, 32))
ATTN = ("attn", (1, 8192, 8192, 32, 128), (2, 16, 16, 2, 8))
ATTN_BWD = ("attn_bwd", (1, 8192, 8192, 32, 128), (2, 16, 16, 2, 8))


def rate(what, dtype=None, env=None):
    name, numbers, small = what

    def ask(place):
        args = [str(x) for x in (small if place.shim else numbers)]
        told = place.must([place.program("tests/gpu/rates"), "0.001" if place.shim else "1", name,
                           *args], env)
        measured = json.loads(told)
        peak = peak_of(machine.facts(place)["device"], dtype) if dtype else None
        if peak:
            measured.update(peak=peak, share=measured["value"] / peak, peak_name="datasheet")
        return measured
    return ask


def ceilings(when):
    return [Case(f"ceiling/copy-{when}", "1 GiB on the device, bytes read + written / s, median "
                 "of 5", rate(COPY), 8, 60),
            Case(f"ceiling/gemm-{when}", "bf16 8192 x 16384 x 4096, 2mnk / s, median of 5",
                 rate(GEMM, "bf16"), 8, 60),
            Case(f"ceiling/attn-{when}", "bf16 8,192 tokens, 32 heads of 128, 4 T^2 d H / s",
                 rate(ATTN, "bf16"), 8, 60),
            Case(f"ceiling/attn-bwd-{when}", "the same backward, 8 T^2 d H / s",
                 rate(ATTN_BWD, "bf16"), 8, 60)]


def torch_beside(mode, model, seq, gbs):
    """The same model in PyTorch, compiled, or eager with all layers recomputed."""
    def ask(place):
        script = os.path.join(machine.ROOT, "tests", "gpu", "torch_dit.py")
        profile = os.path.join(machine.ROOT, "profiles", "models",
                               ("dit-tiny" if place.shim else model) + ".json")
        argv = ["python3", script, profile, "1x2x2" if place.shim else seq,
                str(1 if place.shim else gbs), "2" if place.shim else "10", mode]
        return torch_answer(place, argv + (["cpu"] if place.shim else []))
    return ask


def torch_answer(place, argv):
    # PyTorch brings libraries of its own, beside which those of a pack may be too old.
    p = place.run(argv, {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")})
    if p.returncode == 4:
        raise Skipped(p.stderr.strip().splitlines()[-1])
    p.check_returncode()
    return json.loads(p.stdout.splitlines()[-1])


# name, model at a size, processes, seconds that are expected and allowed
POINTS = (
    ("dit-7b-8k", Point("dit-7b", "8x32x32", 4), 1, 60, 200),
    ("dit-7b-8-layers-74k", Point("dit-7b", "18x64x64", 1, layers=8), 1, 60, 200),
    ("dit-7b-8-layers-8k", Point("dit-7b", "8x32x32", 4, layers=8), 1, 40, 120),
    ("dit-xl-images", Point("dit-xl", "1x16x16", 256, 64), 5, 60, 200),
    ("dit-xl-pack", Point("dit-xl", "8x16x16", 16, 4), 5, 60, 200),
    ("stdit-xl", Point("stdit-xl", "16x16x16", 8, 2), 5, 60, 200),
    ("moviegen-1b", Point("moviegen-1b", "8x32x32", 8, 1), 5, 60, 200))


def cases(place):
    five, one = FORMULA.format("5 processes"), FORMULA.format("1 process")
    steps = [Case("step/" + name, five if n == 5 else one, timed(p, rounds=n), expected, limit)
             for name, p, n, expected, limit in POINTS]
    beside = [Case(f"torch/{mode}-{model}", "tokens/s of PyTorch's step of the same model, median "
                   "of 10 steps", torch_beside(mode, model, seq, gbs), 60, 200)
              for mode, model, seq, gbs in (("compiled", "dit-xl", "8x16x16", 4),
                                            ("eager", "dit-xl", "8x16x16", 4))]
    return ceilings("first") + steps + beside + ceilings("last")
