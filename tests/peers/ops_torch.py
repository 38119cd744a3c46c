"""ops_torch.py DIR: single operations in PyTorch, as trainer/ops/ops.h defines them, against the
cases that ops_dump wrote to DIR; gradients are autograd's."""
import torch

import case

functional = torch.nn.functional
ACT = {"none": lambda x: x, "silu": functional.silu, "gelu": functional.gelu,
       "gelu-tanh": lambda x: functional.gelu(x, approximate="tanh"),
       "swiglu": lambda x: functional.silu(x.chunk(2, 1)[0]) * x.chunk(2, 1)[1]}


def leaves(given, *names):
    return [given[n].requires_grad_() for n in names]


def gradients(outputs, cotangents, inputs):
    """Zero where an input is not used"""
    return [torch.zeros_like(i) if g is None else g for i, g in
            zip(inputs, torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True))]


def attn(texts, given):
    """Each segment by the definition; whether the trainer did it in one pass or in parts"""
    q, k, v = leaves(given, "q", "k", "v")
    heads, kv_heads = int(texts["heads"]), int(texts["kv_heads"])
    out, lse = [], []
    q_len, k_len = ([int(n) for n in given[x]] for x in ("q_len", "k_len"))
    for sq, sk, sv in zip(q.split(q_len), k.split(k_len), v.split(k_len)):
        sq = sq.reshape(len(sq), heads, q.shape[1] // heads)
        sk, sv = (x.reshape(len(x), kv_heads, q.shape[1] // heads)
                  .repeat_interleave(heads // kv_heads, 1) for x in (sk, sv))
        logits = given["scale"] * torch.einsum("qhd,khd->qhk", sq, sk)
        out.append(torch.einsum("qhk,khd->qhd", logits.softmax(-1), sv).flatten(1))
        lse.append(logits.logsumexp(-1) if len(sk) else torch.full((len(sq), heads), -float("inf")))
    o = torch.cat(out)
    dq, dk, dv = gradients([o], [given["d_o"]], [q, k, v])
    return {"o": o, "lse": torch.cat(lse), "dq": dq, "dk": dk, "dv": dv}


def adaln(texts, given):
    names = [n for n in ("x", "branch", "gate", "shift", "scale") if n in given]
    inputs = dict(zip(names, leaves(given, *names)))
    row = given["sample"].long()
    x_out = inputs["x"]
    if "branch" in inputs:
        x_out = x_out + (inputs["gate"][row] if "gate" in inputs else 1) * inputs["branch"]
    else:
        x_out = x_out + 0
    results, outputs, cotangents = {"x_out": x_out}, [x_out], [given["dx_out"]]
    if "dy" in given:
        y = x_out if texts["norm"] == "rms" else x_out - x_out.mean(1, keepdim=True)
        y = y / torch.sqrt(y.square().mean(1, keepdim=True) + given["eps"])
        if "shift" in inputs:
            y = y * (1 + inputs["scale"][row]) + inputs["shift"][row]
        results["y"] = y
        outputs.append(y)
        cotangents.append(given["dy"])
    made = gradients(outputs, cotangents, list(inputs.values()))
    results.update(zip(["d" + n for n in names], made))
    return results


def headnorm(texts, given):
    src, gain = leaves(given, "src", "gain")
    heads, (rows, width), results = int(texts["heads"]), src.shape, {}
    x = src.reshape(rows, heads, width // heads)
    x = x / torch.sqrt(x.square().mean(-1, keepdim=True) + given["eps"]) * gain
    if "pos" in given:
        pos = given["pos"].reshape(rows, 3).clone()
        pos[:, 0] *= 24 / given["fps"][given["sample"].long()]
        pairs = [int(texts["pairs_" + axis]) for axis in "thw"]
        angle = torch.cat([pos[:, i:i + 1] * given["theta"] ** (-torch.arange(p) / p)
                           for i, p in enumerate(pairs)], 1)
        results = {"cos": torch.cos(angle), "sin": torch.sin(angle)}
        # They are turned as complex numbers, component j with component j + d/2.
        turn = torch.polar(torch.ones_like(angle), angle)[:, None]
        turned = torch.complex(*x.chunk(2, -1)) * turn
        x = torch.cat([turned.real, turned.imag], -1)
    dst = x.flatten(1)
    dsrc, dgain = gradients([dst], [given["ddst"]], [src, gain])
    before = given["beta"] * given["dgain"] if given["beta"] != 0 else 0
    return {**results, "dst": dst, "dsrc": dsrc, "dgain": dgain + before}


def act(texts, given):
    x, = leaves(given, "x")
    y = ACT[texts["act"]](x)
    return {"y": y, "dx": gradients([y], [given["dy"]], [x])[0]}


def gemm(texts, given):
    a, b = (given[x].T if texts["t" + x] == "1" else given[x] for x in "ab")
    before = given["alpha"] * (a @ b) + (given["beta"] * given["c"] if "c" in given else 0)
    results = {"c": ACT[texts["act"]](before)}
    if texts["act"] in ("silu", "gelu"):  # the cases with aux
        results["aux"] = before
    return results


def sums(texts, given):
    total = given["x"].sum(0, keepdim=True) + given["beta"] * given["total"]
    return {"total": total, "sumsq": total.square().sum(), "nonfinite": torch.tensor(0.0)}


def sinusoid(texts, given):
    width = int(texts["width"])
    angle = given["values"][:, None] * 10000 ** (-torch.arange(width // 2) / (width // 2))
    turned = torch.cat([torch.cos(angle), torch.sin(angle)], 1)
    return {"out": functional.pad(turned, (0, width % 2))}


def permute(texts, given):
    src, = leaves(given, "src")
    dst = src[given["index"].long()]
    return {"dst": dst, "dsrc": gradients([dst], [given["ddst"]], [src])[0]}


def table(texts, given):
    """The product with a matrix of ones at the places looked up"""
    rows, = leaves(given, "table")
    x = given["x"] + functional.one_hot(given["index"].long(), len(rows)).double() @ rows
    before = given["beta"] * given["dtable"] if given["beta"] != 0 else 0
    return {"x": x, "dtable": before + gradients([x], [given["dx"]], [rows])[0]}


def axpy(texts, given):
    return {"y": given["y"] + given["alpha"] * given["x"]}


def to_digits(x, digits):
    """The nearest number of so many binary digits, of two the even one"""
    part, power = torch.frexp(x)
    return torch.ldexp(torch.round(part * 2 ** digits), power - digits)


def copy(texts, given):
    back = to_digits(given["x"], {"f32": 24, "bf16": 8}[texts["type"]])
    return {"back": back, "rows": back[3].expand_as(back)}


def latents(texts, given):
    def patches(x):
        """[C, t, h, w] to [tokens, C · 8], patches of 2 x 2 x 2"""
        x = x.unfold(1, 2, 2).unfold(2, 2, 2).unfold(3, 2, 2)
        return x.permute(1, 2, 3, 0, 4, 5, 6).flatten(3).flatten(0, 2)

    prediction, = leaves(given, "prediction")
    cell = token = total = 0
    made, unpatched, losses = [], [], []
    for i in range(2):
        t, h, w, first, n = (int(n) for n in given[f"sample/{i}"][:5])
        in_data, in_noise, out_data, out_noise, weight = given[f"sample/{i}"][5:]
        cells = t * h * w
        latent, noise, cond = (given[n][0, cell * c:(cell + cells) * c].reshape(c, t, h, w)
                               for n, c in (("latent", 3), ("noise", 3), ("cond", 2)))
        noised = in_data * latent + in_noise * noise
        made.append(patches(torch.cat([noised, cond]))[first:first + n])
        own = prediction[token:token + n]
        error = own - patches(out_data * latent + out_noise * noise)[first:first + n]
        losses.append(error.square().sum())
        total = total + given["inv_norm"] * weight * losses[-1]
        own = functional.pad(own, (0, 0, first, cells // 8 - first - n))
        own = own.reshape(t // 2, h // 2, w // 2, 3, 2, 2, 2)
        unpatched.append(own.permute(3, 0, 4, 1, 5, 2, 6).flatten())
        cell, token = cell + cells, token + n
    return {"patches": torch.cat(made), "unpatched": torch.cat(unpatched)[None],
            "loss": torch.stack(losses),
            "dprediction": gradients([total], None, [prediction])[0]}


NOISE, LEVEL, DROPOUT, ROUND = 2, 3, 4, 9  # streams of base/philox.h


def philox(counter, key):
    """Salmon et al. 2011: ten rounds on four words"""
    (a, b, c, d), (k, l) = counter, key
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (q >> 32) ^ b ^ k, q & 0xFFFFFFFF, (p >> 32) ^ d ^ l, p & 0xFFFFFFFF
        k, l = (k + 0x9E3779B9) & 0xFFFFFFFF, (l + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


def random_words(seed, stream, ordinal, blocks):
    """Four of each block"""
    words = []
    for block in blocks:
        counter = (block & 0xFFFFFFFF, block >> 32 | stream << 24,
                   ordinal & 0xFFFFFFFF, ordinal >> 32)
        words += philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return words


def uniforms(seed, stream, ordinal, n):
    """Returns elements 0 .. n-1 of a draw. Each takes two words, the high one first, and a block
    has two elements; an element has 52 bits and a half."""
    words = random_words(seed, stream, ordinal, range((n + 1) // 2))
    return torch.tensor([((high << 32 | low) // 4096 + 0.5) / 2 ** 52
                         for high, low in zip(words[::2], words[1::2])][:n])


def draws(texts, given):
    seed, ordinals = int(texts["seed"]), [int(texts[f"ordinal_{i}"]) for i in range(4)]
    normal = lambda stream, n: torch.special.ndtri(
        torch.stack([uniforms(seed, stream, o, n) for o in ordinals]))
    mean, std = given["level_law"]
    dropped = torch.cat([uniforms(seed, DROPOUT, o, 1) for o in ordinals]) < given["dropout"]
    return {"noise": normal(NOISE, 120).flatten()[None],
            "level": mean + std * normal(LEVEL, 1)[:, 0], "dropped": dropped.double()}


def rounded_at_random(x, random):
    """Rounds the nearest f32 to bf16: its last 16 digits, in parts of 2^16, are rounded up where a
    random number takes them to 2^16."""
    near = to_digits(x, 24)
    power = torch.frexp(near)[1] - 8
    parts = torch.ldexp(near.abs(), 16 - power)  # of the last place of bf16, in 2^-16
    return torch.copysign(torch.ldexp(torch.floor((parts + random) / 2 ** 16), power), near)


class Rounding:
    """What stands of the moments between steps: all, or bf16. With bf16 element e has a random
    number of its own, from word e mod 4 of block e / 4."""

    def __init__(self, texts, n):
        self.bf16, self.seed = texts["moments"] == "bf16", int(texts["seed"])
        self.first, self.n = int(texts["first"]), n

    def keep(self, state, update):
        if not self.bf16:
            return
        blocks = range(self.first // 4, (self.first + self.n + 3) // 4)
        words = random_words(self.seed, ROUND, update, blocks)
        words = torch.tensor(words, dtype=torch.int64)[self.first % 4:][:self.n]
        state["exp_avg"].copy_(rounded_at_random(state["exp_avg"], words % 2 ** 16))
        state["exp_avg_sq"].copy_(rounded_at_random(state["exp_avg_sq"], words // 2 ** 16))


def adamw(texts, given):
    beta1, beta2, eps, weight_decay, lr_scale, ema_decay = (float(x) for x in given["settings"])
    weight, average = torch.nn.Parameter(given["master"].clone()), given["ema"].clone()
    counted = int(texts["counted"])
    optimizer = torch.optim.AdamW([weight], betas=(beta1, beta2), eps=eps,
                                  weight_decay=weight_decay)
    rounding, change = Rounding(texts, weight.numel()), torch.zeros(2)
    for update, (grad, lr, clip) in enumerate(zip(given["grads"], given["lr"], given["clip"]), 1):
        before = weight.detach()[0, :counted].clone()
        optimizer.param_groups[0]["lr"] = float(lr) * lr_scale
        weight.grad = (clip * grad)[None]
        optimizer.step()
        rounding.keep(optimizer.state[weight], update)
        average = ema_decay * average + (1 - ema_decay) * weight.detach()
        moved = weight.detach()[0, :counted] - before
        change += torch.stack([before.square().sum(), moved.square().sum()])
    state = optimizer.state[weight]
    return {"master": weight, "weight": weight, "m": state["exp_avg"], "v": state["exp_avg_sq"],
            "ema": average, "change": change}


if __name__ == "__main__":
    operations = (attn, adaln, headnorm, act, gemm, sums, sinusoid, permute, table, axpy, copy,
                  latents, draws, adamw)
    case.main({f.__name__: f for f in operations}, 1)
