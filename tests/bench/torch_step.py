"""torch_step.py WEIGHTS MODEL.json TxHxW SAMPLES STEPS: training steps of
tests/peers/model_torch.py in float32 on one thread, timed.

The network is the one that the peers' test proves equal to the trainer's, a sample at a time (the
trainer's mbs=1), with gradients summed. What it spells out for clarity is done here as a PyTorch
user would: rotary angles once, fused attention and AdamW where this PyTorch has them. A step is all
that the trainer's is: draw noise, forward, backward, norm of the gradients and clip, AdamW. It
prints one JSON object.
"""
import functools
import json
import os
import resource
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))

import torch  # noqa: E402
import model_torch  # noqa: E402

WARM_UP = 2


def resident_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@functools.lru_cache(maxsize=None)
def turns(grid, head_dim, theta, fps, places=model_torch.places, angles=model_torch.angles):
    angle = angles(places(grid), head_dim, theta, fps)[:, None].float()
    return torch.cos(angle), torch.sin(angle)


def rotated(x, turn):
    (a, b), (cos, sin) = x.chunk(2, -1), turn
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def fused_attention(q, k, v, mask=None):
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1).flatten(1)


def use_best_forms():
    model_torch.places, model_torch.angles = tuple, turns
    model_torch.seen = lambda sub, place: None  # a DiT's tokens see all
    model_torch.rotated = rotated
    if hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        model_torch.attention = fused_attention


def read_weights(path):
    with open(path, "rb") as f:
        data = f.read()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    part = lambda x: bytearray(data[slice(*(8 + length + at for at in x["data_offsets"]))])
    read = lambda x: torch.frombuffer(part(x), dtype=torch.float32).reshape(x["shape"]).clone()
    return {n: read(x).requires_grad_() for n, x in header.items()}


def texts(path):
    with open(path) as f:
        m = json.load(f)
    return {"pos_t": "0", "finetune": "", "gated_mlp": "0", "rope_theta": "10000",
            "objective": "edm", "kv_heads": str(m["heads"]), **{k: str(v) for k, v in m.items()}}


def batch(m, seq, samples):
    shape = (m["latent_channels"], seq[0] * m["patch_t"], seq[1] * m["patch_h"],
             seq[2] * m["patch_w"])
    given = {"level": torch.linspace(-1, 1, samples), "fps": torch.full((samples,), 24.0),
             "dropped": torch.zeros(samples), "loss_weight": torch.ones(samples),
             "valid": [shape[1:]] * samples}
    for i in range(samples):
        given.update({f"latent/{i}": torch.randn(shape),
                      f"text/{i}": torch.randn(m["text_len"], m["text_width"]),
                      f"cond/{i}": torch.zeros(0, *shape[1:])})
    return given, shape


def adamw(weights):
    options = dict(lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    try:
        return torch.optim.AdamW(weights, fused=True, **options)
    except (TypeError, RuntimeError):
        return torch.optim.AdamW(weights, foreach=True, **options)


def step(model, optimizer, given, shape):
    samples, total = len(given["level"]), 0.0
    for i in range(samples):
        given[f"noise/{i}"] = torch.randn(shape)
        loss = model_torch.sample_run(model, given, i)[1] / samples
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(list(model.w.values()), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return total


def sgemm_flops(n=1024, k=768):
    a, b = torch.randn(n, k), torch.randn(n, k)
    best = 0.0
    for _ in range(10):
        start = time.perf_counter()
        torch.mm(a, b.T)
        best = max(best, 2 * n * n * k / (time.perf_counter() - start))
    return best


def blas():
    with open("/proc/self/maps") as f:
        maps = f.read()
    if "BLAS_INFO=mkl" in torch.__config__.show():
        return "mkl"
    return "openblas" if "libopenblas" in maps else "other"


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1234)
    idle = resident_bytes()
    use_best_forms()
    m = texts(sys.argv[2])
    weights = read_weights(sys.argv[1])
    model = model_torch.Model(m, weights)
    seq = [int(x) for x in sys.argv[3].split("x")]
    given, shape = batch(model.m, seq, int(sys.argv[4]))
    optimizer = adamw(list(weights.values()))
    seconds, loss = [], 0.0
    for _ in range(WARM_UP + int(sys.argv[5])):
        start = time.perf_counter()
        loss = step(model, optimizer, given, shape)
        seconds.append(time.perf_counter() - start)
    peak = resident_bytes()
    params = sum(w.numel() for w in weights.values())
    print(json.dumps({"torch": torch.__version__, "blas": blas(), "params": params, "loss": loss,
                      "step_s": seconds[WARM_UP:], "idle_bytes": idle, "peak_bytes": peak,
                      "sgemm_flops": sgemm_flops()}))


if __name__ == "__main__":
    main()
