"""A reference's results in a few numbers, so that a machine without PyTorch can hold the trainer's
to them. Only Python's own library is used.

    digest.py FOLDER GOLDEN WHAT

holds the cases that WHAT_dump wrote into FOLDER against GOLDEN's lines of WHAT; exit status 1: they
differ.

A line of GOLDEN is of one kind of results of a case, "grad" of all "grad/...":

    WHAT case kind tensors numbers value

value is the sum over the kind's tensors of the sum over i of c(i) x[i] / (scale sqrt(n)): c(i) is a
fixed sequence in (-1, 1), scale the tensor's largest magnitude (where terms cancel to nothing, that
of the kind), n its length. Two sets of results that agree as case.py asks, within 1e-10 of the
largest element, differ by less than 1e-10 times the square root of the number of tensors unless
errors conspire; one wrong element moves value by about its relative error over sqrt(n). Numbers
that are not finite stand for nothing in value.
"""
import array
import glob
import json
import math
import operator
import os
import struct
import sys

TOLERANCE, NOTHING = 1e-10, 1e-12


def results(path):
    """What the trainer made, {name: numbers}."""
    with open(path, "rb") as f:
        data = f.read()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    part = lambda x: array.array("d", data[slice(*(8 + length + at for at in x["data_offsets"]))])
    return {name[len("out/"):]: part(x) for name, x in header.items() if name.startswith("out/")}


factors = []


def projected(x, scale):
    while len(factors) < len(x):  # Knuth's multiplicative sequence, exact in a double
        factors.append(((len(factors) + 1) * 2654435761 % 2**32 - 2**31) / 2**31)
    if len(x) == 0 or not scale > 0:
        return 0.0
    return sum(map(operator.mul, factors, x)) / (scale * math.sqrt(len(x)))


def digests(tensors):
    """{kind: (tensors, numbers, value)} of {name: numbers}"""
    kinds = {}
    for name in sorted(tensors):
        finite = [v if math.isfinite(v) else 0.0 for v in tensors[name]]
        kinds.setdefault(name.split("/")[0], []).append(finite)
    out = {}
    for kind, members in kinds.items():
        largest = [max(map(abs, x), default=0.0) for x in members]
        value = sum(projected(x, own if own > NOTHING * max(largest) else max(largest))
                    for x, own in zip(members, largest))
        out[kind] = (len(members), sum(map(len, members)), value)
    return out


def line(what, case, kind, digest):
    return "%s %s %s %d %d %.15g" % (what, case, kind, *digest)


def recorded(golden, what):
    """{(case, kind): (tensors, numbers, value)}"""
    rows = [row.split() for row in open(golden) if not row.startswith("#")]
    return {(case, kind): (int(tensors), int(numbers), float(value))
            for of, case, kind, tensors, numbers, value in rows if of == what}


def main(folder, golden, what):
    want, bad, farthest = recorded(golden, what), 0, 0.0
    have = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        case = os.path.basename(path)[:-len(".safetensors")]
        have.update({(case, kind): digest for kind, digest in digests(results(path)).items()})
    for key in sorted(set(want) | set(have)):
        ours, theirs = have.get(key), want.get(key)
        alike = ours and theirs and ours[:2] == theirs[:2]
        off = abs(ours[2] - theirs[2]) / math.sqrt(ours[0]) if alike else math.inf
        farthest = max(farthest, off)
        if not off <= TOLERANCE:
            bad += 1
            print(*key, ours, "recorded", theirs, "DIFFERS")
    print(f"{len(have)} kinds of results, {bad} differ, the farthest {farthest:.1e}")
    return 0 if bad == 0 and have else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
