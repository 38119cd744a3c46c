#!/usr/bin/env python3
"""torch_dit.py MODEL.json TxHxW SAMPLES STEPS compiled|eager [cpu]: training steps of a DiT of a
profile as a PyTorch user would write them, timed.

It is the model that the trainer computes, of family dit with modulation of full rank or of a low
rank a sub-block: the same tensors by the same names (the top of profiles/params.c), nine vectors of
modulation a layer, rotary positions, the noise level and the frame rate embedded, EDM's loss.
tests/peers/torch holds its loss and gradients to the trainer's, and the FLOPs of its products to
flops_reel/3. So tokens/s of both are of the same work.

Weights are f32 under autocast to bf16, attention is scaled_dot_product_attention (cuDNN's where
this PyTorch has it), AdamW is fused, gradients are clipped. `compiled`: torch.compile, nothing is
recomputed. `eager`: every layer is computed again in backward. All samples are one micro-batch.
Prints one JSON object: the median of the steps. Exit status: 2 usage or a model of another kind, 4
when there is no PyTorch or no GPU.
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
EPS = 1e-6
SIGMA_DATA = 0.5  # of EDM
FPS_WIDTH = 256


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def plain_attention(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


attention = getattr(F, "scaled_dot_product_attention", plain_attention)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def wide(x):
    """At least f32: in what statistics are computed."""
    return x if x.dtype == torch.float64 else x.float()


def layer_norm(x):
    return F.layer_norm(x, x.shape[-1:], eps=EPS)


def modulated(x, shift, scale):
    return layer_norm(x) * (1 + scale) + shift


class Rms(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = wide(x)
        return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPS) * self.weight


class Attention(nn.Module):
    """Of tokens to themselves, or to the text's where there is a text_width."""

    def __init__(self, m, text_width=0):
        super().__init__()
        self.heads, width = m["heads"], m["hidden"]
        if text_width:
            self.q, self.kv = linear(width, width), linear(text_width, 2 * width)
        else:
            self.qkv = linear(width, 3 * width)
        self.q_norm, self.k_norm = Rms(width // self.heads), Rms(width // self.heads)
        self.out = linear(width, width)

    def forward(self, x, text=None, turn=None):
        made = (self.qkv(x).chunk(3, -1) if text is None
                else (self.q(x), *self.kv(text).chunk(2, -1)))
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in made)
        q, k = self.q_norm(q), self.k_norm(k)
        if turn is not None:
            q, k = turned(q, *turn), turned(k, *turn)
        return self.out(attention(q.to(v.dtype), k.to(v.dtype), v).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.fc1, self.fc2 = linear(m["hidden"], m["ffn"]), linear(m["ffn"], m["hidden"])

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Pair(nn.Module):
    """A matrix of low rank."""

    def __init__(self, inputs, rank, outputs):
        super().__init__()
        self.a, self.b = linear(inputs, rank), linear(rank, outputs)

    def forward(self, x):
        return self.b(self.a(x))


def modulation(m, vectors):
    """What makes so many vectors of a sample."""
    if m["adaln"] == "full":
        return linear(m["hidden"], vectors * m["hidden"])
    return Pair(m["hidden"], m["adaln_rank"], vectors * m["hidden"])


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.attn, self.cross, self.mlp = Attention(m), Attention(m, m["text_width"]), Mlp(m)
        self.low = m["adaln"] != "full"
        self.adaln = (nn.ModuleDict({sub: modulation(m, 3) for sub in ("attn", "cross", "mlp")})
                      if self.low else modulation(m, 9))

    def vectors(self, c, shared):
        """Shift, scale and gate of the three sub-blocks, [samples, 1, hidden] each."""
        made = ([self.adaln[sub](c) + shared for sub in ("attn", "cross", "mlp")] if self.low
                else self.adaln(c).chunk(3, -1))
        return [[y[:, None] for y in x.chunk(3, -1)] for x in made]

    def forward(self, x, c, shared, text, turn):
        attn, cross, mlp = self.vectors(c, shared)
        x = x + attn[2] * self.attn(modulated(x, *attn[:2]), turn=turn)
        x = x + cross[2] * self.cross(modulated(x, *cross[:2]), text)
        return x + mlp[2] * self.mlp(modulated(x, *mlp[:2]))


class Final(nn.Module):
    def __init__(self, m, cell):
        super().__init__()
        self.adaln, self.out = modulation(m, 2), linear(m["hidden"], cell)

    def forward(self, x, c, shared):
        made = self.adaln(c)
        shift, scale = (made + shared[..., :made.shape[-1]]).chunk(2, -1)
        return self.out(modulated(x, shift[:, None], scale[:, None]))


def sinusoid(x, width):
    """[samples, width] of [samples]"""
    angle = x[:, None] * 10000 ** (-torch.arange(width // 2, device=x.device) / (width / 2))
    return torch.cat([angle.cos(), angle.sin()], -1)


def two_layers(width_in, width, width_out):
    return nn.Sequential(linear(width_in, width), nn.SiLU(), linear(width, width_out))


class Dit(nn.Module):
    def __init__(self, m, recompute):
        super().__init__()
        self.recompute, self.m, width = recompute, m, m["hidden"]
        self.patch = [m["patch_t"], m["patch_h"], m["patch_w"]]
        cell = m["latent_channels"] * self.patch[0] * self.patch[1] * self.patch[2]
        self.low = m["adaln"] != "full"
        self.patch_embed = linear(cell, width)
        self.time_mlp = two_layers(width, width, 3 * width if self.low else width)
        self.fps_mlp = two_layers(FPS_WIDTH, FPS_WIDTH, min(FPS_WIDTH, width))
        self.cond_norm = Rms(width)
        self.text_null = nn.Parameter(torch.zeros(m["text_width"]))
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["layers"]))
        self.final = Final(m, cell)

    def conditioning(self, c_noise, fps):
        """The vector that modulations are made of, and what is added to each, or 0."""
        z = sinusoid(c_noise, self.m["hidden"])
        made, rate = self.time_mlp(z), self.fps_mlp(sinusoid(fps, FPS_WIDTH))
        e, shared = (z, made) if self.low else (made, made.new_zeros(()).expand(1, 1))
        e = e + F.pad(rate, (0, e.shape[-1] - rate.shape[-1]))
        return F.silu(self.cond_norm(e)), shared

    def folded(self, x):
        """[samples, tokens, cell] of latents [samples, channels, t, h, w]"""
        for i, p in enumerate(self.patch):
            x = x.unflatten(2 + 2 * i, (-1, p))
        return x.permute(0, 2, 4, 6, 1, 3, 5, 7).flatten(4).flatten(1, 3)

    def unfolded(self, x, shape):
        grid = [n // p for n, p in zip(shape[2:], self.patch)]
        x = x.unflatten(1, grid).unflatten(4, [shape[1], *self.patch])
        return x.permute(0, 4, 1, 5, 2, 6, 3, 7).reshape(shape)

    def forward(self, latents, c_noise, fps, text, turn):
        """text: [samples, tokens, text_width], or None for the null token"""
        x, (c, shared) = self.patch_embed(self.folded(latents)), self.conditioning(c_noise, fps)
        if text is None:
            text = self.text_null.expand(len(latents), 1, -1)
        for block in self.blocks:
            if self.recompute:
                x = torch.utils.checkpoint.checkpoint(block, x, c, shared, text, turn,
                                                      use_reentrant=False)
            else:
                x = block(x, c, shared, text, turn)
        return self.unfolded(self.final(x, c, shared), latents.shape)


def unsupported(m):
    """Why this script does not compute a profile's model, or None."""
    other = [k for k in ("gated_mlp", "cond_channels", "pos_t", "vocab") if m.get(k)]
    if m.get("kv_heads", m["heads"]) != m["heads"]:
        other.append("kv_heads")
    if m["family"] != "dit" or m.get("adaln") not in ("full", "lora_separate") or other:
        return f"family {m['family']}, adaln {m.get('adaln')} {' '.join(other)}".strip()
    return None if m.get("text_width") else "no text"


def turns(m, grid, fps, device, dtype=torch.float32):
    """Cosines and sines [tokens, head / 2]: of a head's pairs height and width have a third each,
    rounded down, and time the rest."""
    pairs = m["hidden"] // m["heads"] // 2
    side = pairs // 3
    t, h, w = (torch.arange(n, device=device, dtype=dtype) for n in grid)
    place = torch.cartesian_prod(t * (24 / fps), h, w).reshape(-1, 3)
    angle = torch.cat([place[:, i:i + 1] * m.get("rope_theta", 10000) ** (
        -torch.arange(n, device=device, dtype=dtype) / n)
        for i, n in enumerate((pairs - 2 * side, side, side))], -1)
    return angle.cos(), angle.sin()


def inputs(m, grid, samples, device):
    shape = [n * m["patch_" + axis] for n, axis in zip(grid, "thw")]
    draw = lambda *shape: torch.randn(shape, device=device)
    return {"latents": draw(samples, m["latent_channels"], *shape),
            "level": draw(samples) * 1.2 - 1.2, "fps": torch.full((samples,), 24.0, device=device),
            "text": draw(samples, m["text_len"], m["text_width"]),
            "turn": turns(m, grid, 24, device)}


def loss_sum(model, given, noise):
    """The sum of EDM's squared errors in F-space (trainer/data/objective.h)."""
    level = given["level"]
    sigma = level.exp()[:, None, None, None, None]
    x0, total = SIGMA_DATA * given["latents"], sigma ** 2 + SIGMA_DATA ** 2
    x = x0 + sigma * noise
    target = (x0 - SIGMA_DATA ** 2 / total * x) * total.sqrt() / (sigma * SIGMA_DATA)
    made = model(x * total.rsqrt(), level / 4, given["fps"], given["text"], given["turn"])
    return (wide(made) - target).pow(2).sum()


def step(model, optimizer, given, device):
    noise = torch.randn_like(given["latents"])
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = loss_sum(model, given, noise) / noise.numel()
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
    if unsupported(m):
        print(f"{sys.argv[1]}: no model of this script's kind: {unsupported(m)}", file=sys.stderr)
        return 2
    torch.manual_seed(1)
    seq, samples, steps = [int(x) for x in sys.argv[2].split("x")], *map(int, sys.argv[3:5])
    tokens = seq[0] * seq[1] * seq[2]
    model = Dit(m, sys.argv[5] == "eager").to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4,
                                  **({"fused": True} if device == "cuda" else {}))
    run = torch.compile(model) if sys.argv[5] == "compiled" and device == "cuda" else model
    with best_attention():
        seconds, loss = timed(run, optimizer, inputs(m, seq, samples, device), device, steps)
    median = statistics.median(seconds)
    print(json.dumps({
        "value": samples * tokens / median, "unit": "tokens/s", "step_s": median,
        "spread": (max(seconds) - min(seconds)) / median, "rounds": seconds, "loss": loss,
        "params": sum(p.numel() for p in model.parameters()), "torch": torch.__version__,
        "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else None}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
