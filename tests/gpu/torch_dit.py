#!/usr/bin/env python3
"""torch_dit.py MODEL.json TxHxW SAMPLES STEPS compiled|eager [cpu]: training steps of a DiT of a
profile's sizes as a PyTorch user would write them, timed.

Weights are f32 under autocast to bf16, attention is scaled_dot_product_attention (cuDNN's where this
PyTorch has it), AdamW is fused, gradients are clipped. `compiled`: torch.compile, nothing is
recomputed. `eager`: every layer is computed again in backward. All samples are one micro-batch. The
sizes are those of the profile: RMS norm of q and k, rotary positions, cross-attention to the text,
modulation of full rank or of six low ranks; that it is the same function is not claimed
(tests/peers/torch holds that for another one). Prints one JSON object: the median of the steps.
Exit status: 2 usage, 4 when there is no PyTorch or no GPU.
"""
import contextlib
import json
import statistics
import sys
import time

try:
    import torch
    import torch.utils.checkpoint
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    print("this python3 has no PyTorch", file=sys.stderr)
    sys.exit(4)

WARM_UP = 3


def rms(x):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v)
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


class Attention(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.heads, width = m["heads"], m["hidden"]
        self.q, self.kv, self.o = (nn.Linear(width, n, bias=False)
                                   for n in (width, 2 * width, width))
        self.gain_q, self.gain_k = (nn.Parameter(torch.ones(width // self.heads))
                                    for _ in range(2))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, seen, turn=None):
        q, (k, v) = self.split(self.q(x)), (self.split(y) for y in self.kv(seen).chunk(2, -1))
        q, k = rms(q) * self.gain_q, rms(k) * self.gain_k
        if turn is not None:
            q, k = turned(q, *turn), turned(k, *turn)
        q, k = q.to(v.dtype), k.to(v.dtype)
        return self.o(attention(q, k, v).transpose(1, 2).flatten(2))


class Modulation(nn.Module):
    """Six vectors a sample: of full rank, or each through a rank of its own."""

    def __init__(self, m):
        super().__init__()
        width, rank = m["hidden"], m.get("adaln_rank", 0)
        self.full = nn.Linear(width, 6 * width) if not rank else None
        self.low = nn.ModuleList(nn.Sequential(nn.Linear(width, rank, bias=False),
                                               nn.Linear(rank, width)) for _ in range(6 * (rank > 0)))

    def forward(self, c):
        made = self.full(c).chunk(6, -1) if self.full is not None else [f(c) for f in self.low]
        return [x[:, None] for x in made]


class Layer(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.modulation, self.self_attention, self.cross = Modulation(m), Attention(m), Attention(m)
        self.up, self.down = nn.Linear(m["hidden"], m["ffn"]), nn.Linear(m["ffn"], m["hidden"])

    def forward(self, x, c, text, turn):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(c)
        norm = lambda y: F.layer_norm(y, y.shape[-1:])
        y = norm(x) * (1 + scale1) + shift1
        x = x + gate1 * self.self_attention(y, y, turn)
        x = x + self.cross(x, text)
        return x + gate2 * self.down(F.gelu(self.up(norm(x) * (1 + scale2) + shift2)))


class Dit(nn.Module):
    def __init__(self, m, recompute):
        super().__init__()
        self.recompute, width = recompute, m["hidden"]
        cell = m["latent_channels"] * m["patch_t"] * m["patch_h"] * m["patch_w"]
        self.into, self.text = nn.Linear(cell, width), nn.Linear(m["text_width"], width)
        self.level = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.layers = nn.ModuleList(Layer(m) for _ in range(m["layers"]))
        self.out = nn.Linear(width, cell)

    def forward(self, x, level, text, turn):
        x, c, text = self.into(x), F.silu(self.level(level)), self.text(text)
        for layer in self.layers:
            if self.recompute:
                x = torch.utils.checkpoint.checkpoint(layer, x, c, text, turn, use_reentrant=False)
            else:
                x = layer(x, c, text, turn)
        return self.out(F.layer_norm(x, x.shape[-1:]))


def inputs(m, tokens, samples, device):
    half = m["hidden"] // m["heads"] // 2
    angle = torch.arange(tokens, device=device)[:, None] * 10000 ** (
        -torch.arange(half, device=device) / half)
    cell = m["latent_channels"] * m["patch_t"] * m["patch_h"] * m["patch_w"]
    draw = lambda *shape: torch.randn(shape, device=device)
    return (draw(samples, tokens, cell), draw(samples, 256),
            draw(samples, m["text_len"], m["text_width"]), (angle.cos(), angle.sin()))


def step(model, optimizer, given, device):
    noise = torch.randn_like(given[0])
    with torch.autocast(device, dtype=torch.bfloat16):
        made = model(given[0] + noise, *given[1:])
    loss = F.mse_loss(made.float(), noise)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def timed(model, optimizer, given, device, steps):
    seconds = []
    for _ in range(WARM_UP + steps):
        start = time.perf_counter()
        loss = step(model, optimizer, given, device).item()  # which waits for the device
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds[WARM_UP:], loss


def best_attention():
    """cuDNN's where this PyTorch can be told to take it first."""
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        return sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION],
                           set_priority=True)
    except (ImportError, AttributeError, TypeError):
        return contextlib.nullcontext()


def main():
    if len(sys.argv) not in (6, 7) or sys.argv[5] not in ("compiled", "eager"):
        print("usage: " + __doc__.split(":")[0], file=sys.stderr)
        return 2
    device = "cpu" if sys.argv[6:] == ["cpu"] else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        print("this PyTorch sees no GPU", file=sys.stderr)
        return 4
    with open(sys.argv[1]) as f:
        m = json.load(f)
    torch.manual_seed(1)
    seq, samples, steps = [int(x) for x in sys.argv[2].split("x")], *map(int, sys.argv[3:5])
    tokens = seq[0] * seq[1] * seq[2]
    model = Dit(m, sys.argv[5] == "eager").to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4,
                                  **({"fused": True} if device == "cuda" else {}))
    run = torch.compile(model) if sys.argv[5] == "compiled" and device == "cuda" else model
    with best_attention():
        seconds, loss = timed(run, optimizer, inputs(m, tokens, samples, device), device, steps)
    median = statistics.median(seconds)
    print(json.dumps({
        "value": samples * tokens / median, "unit": "tokens/s", "step_s": median,
        "spread": (max(seconds) - min(seconds)) / median, "rounds": seconds, "loss": loss,
        "params": sum(p.numel() for p in model.parameters()), "torch": torch.__version__,
        "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else None}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
