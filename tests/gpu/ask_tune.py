"""ask_tune: what the card's own choices should be: products' algorithms, and own kernels beside the
rate at which memory is copied."""
import json
import os

from ask_bench import COPY, GEMM, POINTS, rate
from place import Case

# M, N, K of the products of a layer of dit-7b at 8,192 tokens: q, k, v; o; the MLP's two
PRODUCTS = {"qkv": (8192, 12288, 4096), "o": (8192, 4096, 4096), "up": (8192, 16384, 4096),
            "down": (8192, 4096, 16384)}


def search(point):
    """Has a training tell its products, and searches the fastest algorithm of each."""
    def ask(place):
        folder = place.folder("search")
        products, table = os.path.join(folder, "products"), os.path.join(folder, "gemm.table")
        # a table that is given would hide the products that it names
        point.trial(place, 2, {"REEL_GEMM_PRODUCTS": products, "REEL_GEMM_TABLE": ""})
        told = place.must([place.program("tests/gpu/tune"), "0.00001" if place.shim else "0.002",
                           products, table])
        found = [json.loads(x) for x in told.splitlines()]
        first, best = (sum(x["flops"] / x[name] for x in found) for name in ("first", "best"))
        with open(table) as f:
            lines = f.read().splitlines()[1:]
        return {"value": first / best, "unit": "x the rate without a table",
                "products": found, "gemm_table": lines}
    return ask


def kernel(name, rows, cols):
    """Asks for a kernel's rate and then for a copy's, on the card as it is at that moment."""
    def ask(place):
        measured = rate((name, (rows, cols), (32, 64)))(place)
        peak = rate(COPY)(place)["value"]
        return {**measured, "peak": peak, "share": measured["value"] / peak, "peak_name": "a copy"}
    return ask


def few(rows, backward):
    """The product of few rows that makes a layer's modulation in dit-7b, by our own kernel, beside a
    copy at that moment and the fastest of cuBLASLt's of the same shape, which has no f32 by bf16."""
    def ask(place):
        n, k = (FEW_SMALL if place.shim else FEW)[::-1 if backward else 1]
        measured = rate(("few_bwd" if backward else "few", (rows, n, k), (rows, n, k)), None,
                        {"REEL_GEMM_TABLE": ""})(place)
        peak = rate(COPY)(place)["value"]
        folder = place.folder("few")
        products = os.path.join(folder, "products")
        with open(products, "w") as f:
            f.write(f"bf16 bf16 n{'n' if backward else 't'} {rows} {n} {k} {k} "
                    f"{n if backward else k} {n}\n")
        found = json.loads(place.must([place.program("tests/gpu/tune"),
                                       "0.00001" if place.shim else "0.01", products,
                                       os.path.join(folder, "gemm.table")]))
        moved = 2 * (n * k + rows * (n + k)) / found["flops"]  # bytes of bf16 a FLOP
        return {**measured, "peak": peak, "share": measured["value"] / peak, "peak_name": "a copy",
                "bf16": {name: found[way] * moved for name, way in
                         (("own", "first"), ("library", "library"))}}
    return ask


def attention(what, sizes, engine):
    """By the first or second engine that cuDNN proposes, or "plain": by our own kernels."""
    def ask(place):
        return rate((what, sizes, (3, 72, 72, 2, 16)), "bf16", {"REEL_ATTN": engine})(place)
    return ask


# columns and terms of the modulation of a layer of dit-7b
FEW, FEW_SMALL = (24576, 4096), (72, 40)
# samples, tokens, keys, heads, head dim
ATTENTION = {"8k": ("attn", (1, 8192, 8192, 32, 128)), "pack": ("pack", (8, 2048, 2048, 16, 128)),
             "cross": ("pack", (8, 2048, 512, 16, 128)), "images": ("attn", (64, 256, 256, 16, 72))}
# of short segments our own kernel is the only one
SHORT = {"16": (4096, 16, 16, 16, 72), "64": (1024, 64, 64, 16, 72)}
KERNELS = {"adaln": 4096, "adaln_bwd": 4096, "headnorm": 4096, "headnorm_bwd": 4096, "gelu": 16384,
           "gelu_bwd": 16384, "swiglu": 16384, "swiglu_bwd": 16384, "adamw": 16384, "sumsq": 16384,
           "permute": 4096}


def engines():
    """cuDNN 9.19 has a second one for all but the backward of packs."""
    flops = "4 pairs of query and key x d H / s, backward 8; by engine "
    found = [Case(f"attn/{name}{way}-{n}", flops + n, attention(what + way, sizes, n), 6, 60)
             for name, (what, sizes) in ATTENTION.items() for way in ("", "_bwd")
             for n in ("1", "plain" if what + way == "pack_bwd" else "2")]
    return found + [Case(f"attn/short-{name}{way}", "bytes of q, k, v, o (and their gradients) / s",
                         short(sizes, way), 6, 60)
                    for name, sizes in SHORT.items() for way in ("", "_bwd")]


def short(sizes, way):
    """FLOPs become bytes: of n tokens, a FLOP a pair and column for 4, 8 of backward, bytes of bf16
    of q, k, v and o, or of these and their gradients."""
    def ask(place):
        measured = rate(("attn" + way, sizes, (9, 7, 7, 2, 16)), "bf16")(place)
        tokens = 7 if place.shim else sizes[1]
        bytes_a_flop = (16 if way else 8) / ((8 if way else 4) * tokens)
        value, peak = measured["value"] * bytes_a_flop, rate(COPY)(place)["value"]
        return {"value": value, "unit": "B/s", "spread": measured["spread"], "peak": peak,
                "share": value / peak, "peak_name": "a copy"}
    return ask


def cases(place):
    found = [Case("gemm/" + name, "bf16 m x n x k = " + " x ".join(map(str, mnk)) +
                  ", 2mnk / s, median of 5, by the heuristic's first algorithm",
                  rate(("gemm", mnk, GEMM[2]), "bf16"), 8, 60) for name, mnk in PRODUCTS.items()]
    found += [Case("search/" + name, "sum over products of 2mnk / rate: without a table, over that by"
                   " the fastest of up to 33, each the median of 5", search(point), 40, 200)
              for name, point, *_ in POINTS]
    found += [Case("kernel/" + name, f"bytes that it must read and write / s, 8192 x {cols}, beside a "
                   "copy's at once", kernel(name, 8192, cols), 8, 60) for name, cols in KERNELS.items()]
    found += [Case(f"few/{rows}{way}", "bytes that it must read and write / s, bf16 " +
                   " x ".join(map(str, FEW)) + f" by {rows} rows, f32 ones backward; beside a copy's at "
                   "once; bf16 rows by our kernel and by cuBLASLt", few(rows, bool(way)), 10, 60)
              for rows in (1, 4, 16) for way in ("", "_bwd")]
    return [Case("copy", "1 GiB on the device, bytes read + written / s", rate(COPY), 8, 60),
            *found, *engines()]
