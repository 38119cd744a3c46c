"""bench_torch.py DIR REPORT.json...: the PyTorch peer of the benchmarks (tests/gpu/torch_dit.py) is
the trainer's model.

It is given the weights and samples of the cases that model_dump wrote to DIR, and its predictions,
losses and gradients are compared, in f64. Each sample goes through it beside another one of its
shape, at another noise level, which must not matter. And of each REPORT, which `reel model --json`
printed, the products of a forward pass of the peer are counted: three times their FLOPs are
flops_reel/3, and its parameters are as many.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gpu"))

import torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
import case  # noqa: E402
import torch_dit  # noqa: E402


class Products(TorchDispatchMode):
    """Counts the FLOPs of matrix products."""

    def __init__(self):
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in ("mm", "bmm"):
            self.flops += 2 * args[0].numel() * args[1].shape[-1]
        elif "mm" in name or "attention" in name:
            raise RuntimeError(f"{name} is not counted")
        return func(*args, **(kwargs or {}))


def counted(path):
    """Is the work of a model what its report says?"""
    with open(path) as f:
        report = json.load(f)
    m, seq, told = report["model"], report["seq"], report["flops_per_token"]["flops_reel/3"]
    model = torch_dit.Dit(m, False)
    given = torch_dit.inputs(m, [seq["t"], seq["h"], seq["w"]], 1, "cpu")
    with torch.no_grad(), Products() as products:
        torch_dit.loss_sum(model, given, torch.randn_like(given["latents"]))
    params = sum(p.numel() for p in model.parameters())
    want = told["total"] * seq["tokens"]
    same = abs(3 * products.flops / want - 1) < 1e-12 and params == report["parameters"]["total"]
    print(f"  {m['name']}: {3 * products.flops} FLOPs, {want:.17g} are told; {params} parameters"
          f"{'' if same else '  DIFFERS'}")
    return same


def sample(model, m, given, i):
    """Prediction and squared errors of sample i, and the factor to those of the clean estimate."""
    latent, level, fps = given[f"latent/{i}"], float(given["level"][i]), float(given["fps"][i])
    text = given[f"text/{i}"]
    none = given["dropped"][i] != 0 or text.shape[0] == 0
    grid = [n // p for n, p in zip(latent.shape[1:], model.patch)]
    made = []
    model.register_forward_hook(lambda module, inputs, out: made.append(out))
    twice = lambda x: torch.stack([x, -x.flip(0)])
    noise = twice(given[f"noise/{i}"])
    both = {"latents": twice(latent), "level": torch.tensor([level, level + 0.5]),
            "fps": torch.tensor([fps, fps]), "text": None if none else twice(text),
            "turn": torch_dit.turns(m, grid, fps, "cpu", torch.float64)}
    first = {k: x[:1] if torch.is_tensor(x) else x for k, x in both.items()}
    squares = torch_dit.loss_sum(model, first, noise[:1])
    torch_dit.loss_sum(model, both, noise)
    sigma2, data2 = torch.tensor(2 * level).exp(), torch_dit.SIGMA_DATA ** 2
    return made[-1][0], squares, sigma2 * data2 / (sigma2 + data2)


def reference(texts, given):
    m = {k: int(v) if v.isdigit() else v for k, v in texts.items()}
    m["rope_theta"] = float(m["rope_theta"])
    assert torch_dit.unsupported(m) is None and m["objective"] == "edm"
    model = torch_dit.Dit(m, True)
    model.load_state_dict({n[len("weight/"):]: t for n, t in given.items()
                           if n.startswith("weight/")})
    runs = [sample(model, m, given, i) for i in range(len(given["level"]))]
    weighted = [w * r[1] for w, r in zip(given["loss_weight"], runs)]
    (given["inv_norm"] * sum(weighted)).backward()
    return {**{f"prediction/{i}": r[0] for i, r in enumerate(runs)},
            "sample_loss": torch.stack([r[1] / r[0].numel() for r in runs]),
            "loss_sum": sum(weighted), "loss_x0_sum": sum(w * r[2] for w, r in zip(weighted, runs)),
            **{f"grad/{n}": torch.zeros_like(p) if p.grad is None else p.grad
               for n, p in model.named_parameters()}}


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    torch_dit.attention = torch_dit.plain_attention  # whose products are counted
    if not all([counted(path) for path in sys.argv[2:]]):
        sys.exit(1)
    case.main({"model": reference}, 3)
