"""ask_check: is what the GPU computes right? Operations first, then runs, then full sizes."""
import json
import re
import shutil

from place import Case, Skipped, Wrong
from runs import STEPS, Runs
from steps import Point, planned

LAYOUTS = ("dp=2,zero=1", "tp=2,sp=1", "cp=2,cp_kind=a2a", "pp=2", "cp=2,dp=2,zero=3,fsdp=4",
           "tp=2,pp=2,vpp=2")
# of the shim in a minute, and the only ones of four ranks
FEW_LAYOUTS = ("dp=2,zero=1", "tp=2,pp=2")
DTYPES = ("f64", "f32", "bf16")


def operation(name):
    def ask(place):
        p = place.run([place.program("tests/gpu/check"), "op", name])
        found = [json.loads(x) for x in p.stdout.splitlines()]
        wrong = sum(x["wrong"] for x in found)
        worst = ", ".join(f"{x['dtype']} {number(x['worst_l2'])}" for x in found)
        measured = {"says": f"{sum(x['cases'] for x in found)} cases; L2 {worst}", "types": found}
        # attention in bf16 is asked with cuDNN and without
        if p.returncode != 0 or len(found) != len(DTYPES) + name.startswith("attn"):
            raise Wrong(f"{wrong} cases are wrong, status {p.returncode}: {p.stderr[-1500:]}",
                        measured)
        return measured
    return ask


def number(x):
    return "not finite" if x is None else f"{x:.2g}"


def near_cpu(place):
    """The same run on the CPU and on the GPU."""
    r = Runs(place, "near-cpu")
    r.train("cpu", device="cpu")
    r.train("gpu")
    return {"says": r.apart("cpu", "gpu", 1e-11)}


def first_weights(place):
    """At a learning rate of 0 the weights stay the first ones."""
    for dtype in DTYPES:
        r = Runs(place, "first-" + dtype, dtype, lr=0)
        r.stop("cpu", 2, device="cpu")
        r.stop("gpu", 2)
        if r.weights("cpu", 2) != r.weights("gpu", 2):
            raise Wrong(f"the first weights in {dtype} are not those of the CPU")
    return {"says": "the CPU's bits in " + ", ".join(DTYPES)}


def twice(place):
    said = []
    for dtype in ("f32", "bf16"):
        r = Runs(place, "twice-" + dtype, dtype, options=("--deterministic",))
        r.train("one")
        r.train("two")
        said.append(f"{dtype}: {r.same('one', 'two')}")
    return {"says": "; ".join(said)}


def resumed(place):
    """N steps in one go, and N/2, a save, and the rest by another process."""
    said = []
    for dtype in ("f32", "bf16"):
        r = Runs(place, "resumed-" + dtype, dtype, options=("--deterministic",))
        r.train("whole")
        r.stop("parts", STEPS // 2)
        r.train("parts", "--resume", "--attempt", "2")
        said.append(f"{dtype}: {r.same('whole', 'parts')}")
    return {"says": "; ".join(said)}


def moved(place):
    r = Runs(place, "moved")
    r.train("cpu", device="cpu")
    r.stop("moved", STEPS // 2, device="cpu")
    r.train("moved", "--resume", "--attempt", "2")
    return {"says": r.apart("cpu", "moved", 1e-11)}


def graphs(place):
    """Steps as graphs of the device, and call by call."""
    said = []
    for dtype in ("f32", "bf16"):
        r = Runs(place, "graphs-" + dtype, dtype, options=("--deterministic",))
        r.train("graphs")
        r.train("calls", "--graphs", "off")
        said.append(f"{dtype}: {r.same('graphs', 'calls')}")
    return {"says": "; ".join(said)}


def diverges(place):
    """Weights leave the range of numbers: steps are looked at again, skipped, and the run ends."""
    said = {}
    for device in ("cpu", "cuda"):
        r = Runs(place, "diverges-" + device, "f32", lr=1000, steps=60,
                 more={"budget": {"nonfinite_steps": 2}})
        p = r.tried("run", device=device)
        if p.returncode != 6 or "2 steps in a row had a gradient that is not finite" not in p.stderr:
            raise Wrong(f"{device}: status {p.returncode}: {p.stderr.strip()[-800:]}")
        said[device] = re.findall(r"step (\d+) is skipped: a gradient is not finite", p.stderr)
    cpu, cuda = (int((said[k] or ["0"])[0]) for k in ("cpu", "cuda"))
    if not cpu or abs(cpu - cuda) > 1:
        raise Wrong(f"other steps are skipped: {said}")
    return {"says": f"status 6, skipped from step {cuda} on, by the CPU from {cpu}"}


def nccl(place):
    p = place.run([place.program("tests/gpu/nccl"), *("1000 1000" if place.shim else
                                                      f"{2 ** 22 + 3} {2 ** 28}").split()])
    if p.returncode == 4:
        raise Skipped(p.stderr.strip()[-300:])
    if p.returncode != 0:
        raise Wrong(f"status {p.returncode}: {p.stderr.strip()[-1500:]}")
    return {"says": "all calls; a late operation is seen and aborted, and the GPU goes on",
            **json.loads(p.stdout)}


def layout(text):
    def ask(place):
        r = Runs(place, "layout-" + text)
        r.train("one", device="cpu")
        r.train("many", layout=text)
        return {"says": r.apart("one", "many", 1e-11)}
    return ask


def sanitizer(tool):
    """Small cases of every operation would take minutes: those with the most barriers."""
    def ask(place):
        if place.shim:
            raise Skipped("compute-sanitizer looks at a GPU's kernels, and the shim has none")
        at = shutil.which("compute-sanitizer") or shutil.which(
            "/usr/local/cuda/bin/compute-sanitizer")
        if not at:
            raise Skipped("this machine has no compute-sanitizer")
        for op in ("adaln_bwd", "headnorm_bwd", "attn_bwd", "sumsq"):
            p = place.run([at, "--tool", tool, "--error-exitcode", "9",
                           place.program("tests/gpu/check"), "op", op])
            if p.returncode != 0:
                raise Wrong(f"{op}: status {p.returncode}: {(p.stdout + p.stderr)[-1500:]}")
        return {"says": "nothing found in four operations"}
    return ask



# M, N, K of dit-7b's largest products at 8,192 tokens, and a sum that is longest; rows
FULL = {"gemm-up": ("gemm", (8192, 16384, 4096, 4), (40, 33, 24, 4)),
        "gemm-down": ("gemm", (8192, 4096, 16384, 4), (33, 40, 64, 4)),
        "attn-8k": ("attn", (1, 8192, 32, 128, 16), (1, 40, 2, 16, 4)),
        "attn-74k": ("attn", (1, 73728, 8, 128, 4), (1, 70, 1, 8, 2)),
        "attn-low": ("attn_low", (1, 8256, 8, 128, 8), (1, 192, 2, 16, 4)),
        "attn-images": ("attn", (64, 256, 16, 72, 16), (3, 16, 2, 24, 4))}


def full(what):
    def ask(place):
        kind, numbers, small = what
        args = [str(x) for x in (small if place.shim else numbers)]
        p = place.run([place.program("tests/gpu/full"), kind, *args])
        off = json.loads(p.stdout) if p.stdout.strip() else {}
        measured = {"says": ", ".join(f"{k} {number(v)}" for k, v in off.items()), "l2": off}
        if p.returncode != 0:
            raise Wrong(f"status {p.returncode}: {p.stderr[-1500:]}", measured)
        return measured
    return ask


# Models, of which one layer is computed, and latent cells: at full size, and on the shim.
BLOCKS = {"dit": (("dit-xl", 4, 28, 28), ("dit-tiny", 2, 8, 8)),
          "moviegen": (("moviegen-1b", 2, 28, 28), ("moviegen-tiny", 2, 8, 8)),
          "stdit": (("stdit-xl", 4, 28, 28), ("stdit-tiny", 2, 8, 8))}


def block(what):
    def ask(place):
        args = [str(x) for x in what[1 if place.shim else 0]]
        p = place.run([place.program("tests/gpu/block"), *args])
        off = json.loads(p.stdout) if p.stdout.strip() else {}
        measured = {"says": off and f"output {number(off['out'])}, gradients "
                    f"{number(off['gradients'])}; {off['worst']} {number(off['its'])}", "l2": off}
        if p.returncode != 0:
            raise Wrong(f"status {p.returncode}: {p.stderr[-1500:]}", measured)
        return measured
    return ask


def runs():
    return [
        Case("run/near-cpu", "f64, 4 steps, checkpoints: max|a-b| / max|a| of a tensor <= 1e-11",
             near_cpu, 10, 60),
        Case("run/first-weights", "lr 0: exported weights have the bits of the CPU's",
             first_weights, 20, 90),
        Case("run/twice", "two runs, --deterministic, all files of the last checkpoint equal", twice,
             20, 90),
        Case("run/resumed", "4 steps = 2, save, 2 more: all files equal", resumed, 20, 90),
        Case("run/graphs", "--deterministic, --graphs auto and off: all files of the last checkpoint "
             "equal", graphs, 20, 90),
        Case("run/diverges", "f32, lr 1000: skipped from the same step on as on the CPU, or one beside "
             "it, status 6", diverges, 20, 60),
        Case("run/cpu-to-gpu", "f64, 2 steps on the CPU, 2 on the GPU, as 4 on the CPU: 1e-11",
             moved, 10, 60)]


def cases(place):
    names = place.must([place.program("tests/gpu/check"), "list"]).split()
    ops = "outputs against f64 on the CPU: L2 1e-12, 1e-5, 4e-3 and 1.25 x the CPU's bf16, by " \
          "cuDNN 2 x; twice the same bits"
    found = [Case("op/" + n, ops, operation(n), 8, 120 if place.shim else 60) for n in names]
    found += runs()
    found += [Case("full/" + name, f"bf16 {' x '.join(map(str, x[1][:-1]))}: {x[1][-1]} rows against "
                   "f64, L2 <= 4e-3, lse 1e-5; all written", full(x), 20, 90)
              for name, x in FULL.items()]
    found += [Case("block/" + name, f"bf16, one layer of {x[0][0]} on {x[0][1]}x{x[0][2]}x{x[0][3]} "
                   "cells and half as many, against f64 on the CPU: L2 <= 1e-2 of the output, and of "
                   "the block's gradients together", block(x), 30, 120) for name, x in BLOCKS.items()]
    found += [Case("nccl/one-rank", "every call by a communicator of one rank in f64, f32 and bf16, "
                   "bits; an operation behind 4 s of copies is late after 1 s, and is aborted", nccl,
                   15, 120)]
    found += [Case("layout/" + x, "f64, all ranks on one GPU, checkpoint as one rank's on the "
                   "CPU: 1e-11", layout(x), 15, 90)
              for x in (FEW_LAYOUTS if place.shim else LAYOUTS)]
    found += [Case("memory/plan", "dit-xl, bf16: memory in use after the last step by "
                   "cudaMemGetInfo, less an idle process's, is the plan's device side within 2 %",
                   planned(Point("dit-xl", "8x16x16", 8, 4)), 30, 120)]
    found += [Case("sanitizer/" + t, f"compute-sanitizer --tool {t} finds nothing", sanitizer(t),
                   60, 200) for t in ("racecheck", "memcheck")]
    return found
