"""model_torch.py DIR: the model in PyTorch, from its documentation, against the cases that
model_dump wrote to DIR.

Sources: the names and shapes at the top of profiles/params.c, profiles/model.h for the families,
the essays of trainer/dit/dit_block.c, trainer/dit/dit_cond.c and trainer/data/objective.h,
trainer/ops/ops.h for norms, positions, patches and sinusoids, and the top of profiles/finetune.c
for what is trained. Each sample goes through the network alone, ST-DiT's short attentions are masks
over all its tokens, an adapter is a change of its weight, and gradients are autograd's: packing,
order of rows and sums and every backward formula of the trainer are its own.
"""
import fnmatch
import json
import math

import torch

import case

EPS = 1e-6
SIGMA_DATA = 0.5


# ---- pieces ----

def layer_norm(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=EPS)


def rms_norm(x, gain):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * gain


def sinusoid(value, width):
    angle = value * 10000 ** (-torch.arange(width // 2) / (width / 2))
    return torch.cat([torch.cos(angle), torch.sin(angle)])


def patches(x, patch):
    """[C, t, h, w] to [tokens, C P]"""
    pt, ph, pw = patch
    channels, t, h, w = x.shape
    x = x.reshape(channels, t // pt, pt, h // ph, ph, w // pw, pw)
    return x.permute(1, 3, 5, 0, 2, 4, 6).reshape(-1, channels * pt * ph * pw)


def unpatched(tokens, shape, patch):
    """[tokens, C P] to [C, t, h, w]"""
    pt, ph, pw = patch
    channels, t, h, w = shape
    x = tokens.reshape(t // pt, h // ph, w // pw, channels, pt, ph, pw)
    return x.permute(3, 0, 4, 1, 5, 2, 6).reshape(shape)


def places(grid):
    """[tokens, 3]: every token's t, h, w"""
    return torch.cartesian_prod(*(torch.arange(n) for n in grid)).reshape(-1, 3)


def angles(place, head_dim, theta, fps):
    """[tokens, head_dim / 2]: time's pairs first, then a third of the pairs, rounded down, for each
    of height and width"""
    side = head_dim // 2 // 3
    at = place * torch.tensor([24 / fps, 1, 1])
    pairs = (head_dim // 2 - 2 * side, side, side)
    turns = [at[:, i:i + 1] * theta ** (-torch.arange(p) / p) for i, p in enumerate(pairs)]
    return torch.cat(turns, 1)


def rotated(x, angle):
    """x [tokens, heads, d]"""
    a, b = x.chunk(2, -1)
    cos, sin = torch.cos(angle)[:, None], torch.sin(angle)[:, None]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def seen(sub, place):
    """[tokens, tokens]: which tokens a query sees: of its frame, of its place in every frame, or
    all"""
    same = place[:, None] == place[None]
    frame, spot = same[..., 0], same[..., 1] & same[..., 2]
    return {"spatial": frame, "temporal": spot, "attn": torch.ones_like(frame)}[sub]


def attention(q, k, v, mask=None):
    """q [queries, heads, d], k and v [keys, kv_heads, d]: query head h reads kv head
    h // (heads / kv_heads)"""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    logits = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[2])
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf)
    return torch.einsum("hqk,khd->qhd", logits.softmax(-1), v).flatten(1)


def coefficients(objective, level):
    """Returns of a noise level: data_scale; alpha, sigma; c_in; the target as a function of x0,
    eps; the clean estimate as a function of x_t, F."""
    ratio = math.exp(level)
    if objective == "edm":
        # Karras et al., table 1: D = c_skip x + c_out F, and F's target is (x0 - c_skip x) / c_out
        total = ratio ** 2 + SIGMA_DATA ** 2
        skip, out = SIGMA_DATA ** 2 / total, ratio * SIGMA_DATA / math.sqrt(total)
        return (SIGMA_DATA, 1, ratio, 1 / math.sqrt(total),
                lambda x0, eps: (x0 - skip * (x0 + ratio * eps)) / out,
                lambda x, f: skip * x + out * f)
    if objective == "rectified_flow":
        t = ratio / (1 + ratio)
        return 1, 1 - t, t, 1, lambda x0, eps: eps - x0, lambda x, f: x - t * f
    alpha = 1 / math.sqrt(1 + ratio ** 2)
    sigma = ratio * alpha
    return (1, alpha, sigma, 1, lambda x0, eps: alpha * eps - sigma * x0,
            lambda x, f: alpha * x - sigma * f)


# ---- what is trained ----

class Tuning:
    """Of the members "groups" and "lora"; with ' for ", in text"""

    def __init__(self, text):
        whole = json.loads(text.replace("'", '"') or "{}")
        self.groups, self.lora = whole.get("groups", []), whole.get("lora")

    def adapts(self, name):
        return self.lora is not None and any(fnmatch.fnmatchcase(name, pattern)
                                             for pattern in self.lora["match"])

    def trains(self, name):
        """The first group that matches decides; it may leave it at: all, or with adapters those
        alone"""
        group = next((g for g in self.groups if fnmatch.fnmatchcase(name, g["match"])), {})
        return group.get("trainable", self.lora is None or name.endswith((".lora_a", ".lora_b")))


# ---- the network ----

class Model:
    def __init__(self, texts, weights):
        self.m = {k: int(v) if v.isdigit() else v for k, v in texts.items()}
        self.w = weights
        self.finetune = Tuning(texts["finetune"])
        self.patch = (self.m["patch_t"], self.m["patch_h"], self.m["patch_w"])
        self.head_dim = self.m["hidden"] // self.m["heads"]
        self.subs = (["spatial", "temporal"] if self.m["family"] == "stdit" else []) + ["attn"]
        self.subs += ["cross", "mlp"] if self.m["text_width"] else ["mlp"]

    def linear(self, x, name):
        weight, lora = self.w[name + ".weight"], self.finetune.lora
        if self.finetune.adapts(name + ".weight"):
            change = lora["alpha"] / lora["rank"] * self.w[name + ".lora_b"]
            weight = weight + change @ self.w[name + ".lora_a"]
        return x @ weight.T

    def norm(self, x):
        """Of the residual stream, without gain"""
        return rms_norm(x, 1) if self.m["family"] == "moviegen" else layer_norm(x)

    def looked_up(self, place):
        """What the position tables add to the patch embedding"""
        return sum(self.w[f"pos_{axis}.weight"][place[:, i]] for i, axis in enumerate("thw"))

    def conditioning(self, c_noise, fps):
        """The vector e after its norm, and u or 0"""
        z = sinusoid(c_noise, self.m["hidden"])
        made = self.linear(torch.nn.functional.silu(self.linear(z, "time_mlp.0")), "time_mlp.2")
        e, u = (z, made) if self.m["adaln"] in ("lora_separate", "lora_fused") else (made, 0)
        rate = self.linear(sinusoid(fps, 256), "fps_mlp.0")
        rate = self.linear(torch.nn.functional.silu(rate), "fps_mlp.2")
        e = e + torch.nn.functional.pad(rate, (0, self.m["hidden"] - rate.numel()))
        return rms_norm(e, self.w["cond_norm.weight"]), u

    def pair(self, e, name):
        """Full matrix or low-rank pair of silu(e), whichever the model has"""
        e = torch.nn.functional.silu(e)
        if self.m["adaln"] == "full":
            return self.linear(e, name)
        return self.linear(self.linear(e, name + ".a"), name + ".b")

    def modulations(self, cond, layer):
        """[shift, scale, gate] of every sub-block"""
        if cond is None:
            return {s: (0, 0, 1) for s in self.subs}
        e, u = cond
        name = f"blocks.{layer}.adaln"
        if self.m["adaln"] == "lora_separate":
            made = [self.pair(e, f"{name}.{s}") for s in self.subs]
        else:
            made = self.pair(e, name).chunk(len(self.subs))
        return {s: (x + u).chunk(3) for s, x in zip(self.subs, made)}

    def heads(self, x, gain=None):
        x = x.reshape(x.shape[0], -1, self.head_dim)
        return x if gain is None else rms_norm(x, self.w[gain + ".weight"])

    def self_attention(self, y, name, mask, angle):
        """angle: of rotary positions; None: there are tables"""
        wide, narrow = self.m["heads"] * self.head_dim, self.m["kv_heads"] * self.head_dim
        q, k, v = self.linear(y, name + ".qkv").split([wide, narrow, narrow], 1)
        q, k = self.heads(q, name + ".q_norm"), self.heads(k, name + ".k_norm")
        if angle is not None:
            q, k = rotated(q, angle), rotated(k, angle)
        return self.linear(attention(q, k, self.heads(v), mask), name + ".out")

    def cross_attention(self, y, name, text):
        k, v = self.linear(text, name + ".kv").chunk(2, 1)
        q = self.heads(self.linear(y, name + ".q"), name + ".q_norm")
        k = self.heads(k, name + ".k_norm")
        return self.linear(attention(q, k, self.heads(v)), name + ".out")

    def mlp(self, y, name):
        x = self.linear(y, name + ".fc1")
        if self.m["gated_mlp"]:
            gate, up = x.chunk(2, 1)
            x = torch.nn.functional.silu(gate) * up
        else:
            x = torch.nn.functional.gelu(x)
        return self.linear(x, name + ".fc2")

    def branch(self, sub, y, layer, place, angle, text):
        name = f"blocks.{layer}.{sub}"
        if sub == "mlp":
            return self.mlp(y, name)
        if sub == "cross":
            return self.cross_attention(y, name, text)
        return self.self_attention(y, name, seen(sub, place), angle)

    def forward(self, x, c_noise, fps, text):
        """x [C + cond, t, h, w], the network's input; text [rows, text_width] or None for the null
        token"""
        place = places([n // p for n, p in zip(x.shape[1:], self.patch)])
        cond = None if self.m["adaln"] == "none" else self.conditioning(c_noise, fps)
        if self.m["text_width"] and text is None:
            text = self.w["text_null"][None]
        shape = (self.m["latent_channels"],) + tuple(x.shape[1:])
        x = self.linear(patches(x, self.patch), "patch_embed")
        if self.m["pos_t"]:
            x, angle = x + self.looked_up(place), None
        else:
            angle = angles(place, self.head_dim, float(self.m["rope_theta"]), fps)
        for layer in range(self.m["layers"]):
            modulation = self.modulations(cond, layer)
            for sub in self.subs:
                shift, scale, gate = modulation[sub]
                y = self.norm(x) * (1 + scale) + shift
                x = x + gate * self.branch(sub, y, layer, place, angle, text)
        y = self.norm(x)
        if cond is not None:
            e, u = cond
            last = self.pair(e, "final.adaln")
            shift, scale = (last + (u[:last.numel()] if torch.is_tensor(u) else 0)).chunk(2)
            y = y * (1 + scale) + shift
        return unpatched(self.linear(y, "final.out"), shape, self.patch)


def sample_run(model, given, i):
    """Prediction, and mean and sums of the squared errors, of sample i"""
    level, fps = float(given["level"][i]), float(given["fps"][i])
    scale, alpha, sigma, c_in, target, clean = coefficients(model.m["objective"], level)
    x0, eps, text = scale * given[f"latent/{i}"], given[f"noise/{i}"], given[f"text/{i}"]
    x_t = alpha * x0 + sigma * eps
    no_text = given["dropped"][i] != 0 or text.shape[0] == 0
    given_x = torch.cat([c_in * x_t, given[f"cond/{i}"]])
    out = model.forward(given_x, level / 4, fps, None if no_text else text)
    t, h, w = (int(n) for n in given["valid"][i])
    errors = (out - target(x0, eps), clean(x_t, out) - x0)
    squares, squares_x0 = (e[:, :t, :h, :w] ** 2 for e in errors)
    weight = given["loss_weight"][i]
    return out, squares.mean(), weight * squares.sum(), weight * squares_x0.sum()


def reference(texts, given):
    weights = {n[len("weight/"):]: t for n, t in given.items() if n.startswith("weight/")}
    model = Model(texts, weights)
    trained = {n: w.requires_grad_() for n, w in weights.items() if model.finetune.trains(n)}
    runs = [sample_run(model, given, i) for i in range(len(given["level"]))]
    loss = sum(r[2] for r in runs)
    (given["inv_norm"] * loss).backward()
    results = {f"prediction/{i}": r[0] for i, r in enumerate(runs)}
    results.update({"sample_loss": torch.stack([r[1] for r in runs]), "loss_sum": loss,
                    "loss_x0_sum": sum(r[3] for r in runs)})
    results.update({f"grad/{n}": torch.zeros_like(w) if w.grad is None else w.grad
                    for n, w in trained.items()})
    return results


if __name__ == "__main__":
    case.main({"model": reference}, 3)
