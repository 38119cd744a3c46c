"""What the references share. It reads the cases of model_dump and ops_dump, sets their results
beside a reference's, and prints the table.

A case is a safetensors file: texts that describe it, tensors "in/..." and the trainer's results
"out/...". A reference takes the texts and the inputs, and gives every result by name. Two tensors
agree when max |a - b| <= 1e-10 max |b|: float64 sums of some hundred products in another order
differ by 1e-17 to 1e-14 of the largest element, a wrong formula or a constant cut short by far
more.
"""
import glob
import json
import os
import struct
import sys

import torch

import digest

TOLERANCE = 1e-10


def read(path):
    """Texts, inputs and results of a case."""
    with open(path, "rb") as f:
        data = f.read()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    texts, tensors = header.pop("__metadata__"), {}
    for name, x in header.items():
        first, end = (8 + length + at for at in x["data_offsets"])
        assert x["dtype"] == "F64"
        values = torch.zeros(0, dtype=torch.float64)
        if end > first:
            values = torch.frombuffer(bytearray(data[first:end]), dtype=torch.float64)
        tensors[name] = values.reshape(x["shape"])
    part = lambda prefix: {n[len(prefix):]: t for n, t in tensors.items() if n.startswith(prefix)}
    return texts, part("in/"), part("out/")


def largest(x):
    """Returns the largest finite magnitude."""
    if x.numel() == 0:
        return 0.0
    return float(torch.where(torch.isfinite(x), x.abs(), torch.zeros_like(x)).max())


def difference(ours, reference, scale):
    """max |a - b| / scale; what is not finite must be the same; nan where shapes differ"""
    if ours.shape != reference.shape:
        return float("nan")
    if ours.numel() == 0:
        return 0.0
    apart = (ours - reference).abs()
    off = float(torch.where(ours == reference, torch.zeros_like(ours), apart).max())
    return off if off == 0 or off != off else off / scale if scale > 0 else float("inf")


def scales(reference):
    """Returns each result's largest element; where terms cancel and a result is all zero, that of
    its kind, which is "grad" of "grad/..."."""
    kind = lambda name: name.split("/")[0]
    own = {n: largest(x) for n, x in reference.items()}
    return {n: own[n] or max(own[other] for other in own if kind(other) == kind(n)) for n in own}


def compare(name, ours, reference, worst):
    """Returns of one case its `worst` tensors, and all that do not agree, as lines; how many those
    are, of how many."""
    reference = {n: x.detach() for n, x in reference.items()}
    scale = scales(reference)
    off = {n: difference(ours[n], reference[n], scale[n]) for n in ours if n in reference}
    off.update({n: float("nan") for n in set(ours) ^ set(reference)})  # one side alone has it
    order = sorted(off, key=lambda n: off[n] if off[n] == off[n] else float("inf"), reverse=True)
    bad = [n for n in order if not off[n] <= TOLERANCE]
    for n in order[:max(worst, len(bad))]:
        print(f"  {name:<34} {n:<36} {off[n]:9.2e}{'  DIFFERS' if n in bad else ''}")
    return len(bad), len(order)


def record(name, reference):
    """Lines for tests/golden/torch.txt, if they are wanted."""
    what = os.path.basename(sys.argv[0])[:-len("_torch.py")]
    numbers = {n: x.detach().flatten().tolist() for n, x in reference.items()}
    with open(os.environ["RECORD"], "a") as f:
        for kind, made in digest.digests(numbers).items():
            print(digest.line(what, name, kind, made), file=f)


def main(references, worst):
    """references: by the text "op", functions of (texts, inputs) that give the results. RECORD: a
    file for what they gave."""
    bad = tensors = 0
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    paths = sorted(glob.glob(os.path.join(sys.argv[1], "*.safetensors")))
    for path in paths:
        texts, inputs, ours = read(path)
        name = os.path.basename(path)[:-len(".safetensors")]
        reference = references[texts["op"]](texts, inputs)
        if os.environ.get("RECORD"):
            record(name, reference)
        some_bad, some = compare(name, ours, reference, worst)
        bad, tensors = bad + some_bad, tensors + some
    print(f"{len(paths)} cases, {tensors} tensors, {bad} differ by more than {TOLERANCE:g}")
    sys.exit(0 if bad == 0 and tensors > 0 else 1)
