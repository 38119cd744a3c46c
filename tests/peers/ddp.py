"""A PyTorch DistributedDataParallel training over gloo, as people write them: it saves every
--every steps and when it is told to stop, and goes on from its newest checkpoint.
tests/peers/faults runs it under 'reel wrap' and under submitit.

What really happened stands in FOLDER/steps, which rank 0 appends to: 'begin FROM' at each start,
the number of each step that it took, and 'end HASH' when the last step is saved. 'rank' lines of
FOLDER/ranks name each process that runs.
"""
import argparse
import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist


def arguments(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=40)
    parser.add_argument("--step-s", type=float, default=0.05)
    return parser.parse_args(argv)


def begin(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      WORLD_SIZE=str(world))
    torch.manual_seed(7)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def batch(step, rank):
    draw = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(8, 16, generator=draw)
    return x, x.sum(dim=1, keepdim=True).sin()


def save(path, model, optimizer, step):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
               path + ".new")
    os.replace(path + ".new", path)


def weights_hash(model):
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return hashlib.sha256(weights).hexdigest()[:16]


def train(args, rank, world, port, stopping):
    """stopping(): was this process told to stop. Returns True when the last step is saved, False
    when it stopped before."""
    model, optimizer = begin(rank, world, port)
    path, first = os.path.join(args.folder, "latest.pt"), 0
    if os.path.exists(path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    with open(os.path.join(args.folder, "ranks"), "a") as ranks:
        ranks.write(f"{rank} {os.getpid()} {os.environ.get('SLURMD_NODENAME', '-')}\n")
    steps = open(os.path.join(args.folder, "steps") if rank == 0 else os.devnull, "a", buffering=1)
    steps.write(f"begin {first}\n")
    for step in range(first + 1, args.steps + 1):
        x, y = batch(step, rank)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(args.step_s)
        steps.write(f"{step}\n")
        told = torch.tensor([float(stopping()), float(loss)])
        dist.all_reduce(told)
        if rank == 0:
            print(f"step: {step:3d}/{args.steps} loss: {told[1].item() / world:.6f}", flush=True)
        stop = told[0].item() > 0
        if rank == 0 and (stop or step % args.every == 0 or step == args.steps):
            save(path, model, optimizer, step)
        if stop and step < args.steps:
            return False
    steps.write(f"end {weights_hash(model)}\n")
    return True


def main():
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    port = 20000 + int(os.environ["SLURM_JOB_ID"]) % 5000
    train(arguments(), int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"]), port,
          lambda: bool(told))
    sys.exit(0)


if __name__ == "__main__":
    main()
