"""ask_tune: what the card's own choices should be: products' algorithms, and own kernels beside the
rate at which memory is copied."""
from ask_bench import COPY, GEMM, rate
from place import Case, Skipped

# M, N, K of the products of a layer of dit-7b at 8,192 tokens: q, k, v; o; the MLP's two
PRODUCTS = {"qkv": (8192, 12288, 4096), "o": (8192, 4096, 4096), "up": (8192, 16384, 4096),
            "down": (8192, 4096, 16384)}


def search(place):
    raise Skipped("not built: a search of cuBLASLt's algorithms that writes REEL_GEMM_TABLE's file")


def kernels(place):
    raise Skipped("not built: times of single kernels beside the rate of a copy")


def cases(place):
    found = [Case("gemm/" + name, "bf16 m x n x k = " + " x ".join(map(str, mnk)) +
                  ", 2mnk / s, median of 5, by the heuristic's first algorithm",
                  rate(("gemm", mnk, GEMM[2]), "bf16"), 8, 60) for name, mnk in PRODUCTS.items()]
    return found + [
        Case("copy", "1 GiB on the device, bytes read + written / s", rate(COPY), 8, 60),
        Case("gemm/search", "the fastest algorithm of each product", search),
        Case("kernels", "bytes that a kernel must move / s, share of a copy's", kernels)]
