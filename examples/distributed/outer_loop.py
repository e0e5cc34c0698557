"""Train on several processes that exchange coded differences of models every few steps.

    torchrun --nproc-per-node 2 examples/distributed/outer_loop.py

It trains a classifier of handwritten digits. Each process has its own half of the images. With
`--folder FOLDER`, it saves its state after each round, and a second start continues from there.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import aquila.distributed
from aquila.tasks.digits import load_digits


def make_model():
    torch.manual_seed(0)  # all ranks start with the same weights
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def newest_round(folder):
    """Return the newest round that all ranks have saved, 0 if there is none."""
    rounds = [int(path.stem.split("-")[1]) for path in folder.glob(f"rank{dist.get_rank()}-*.pt")]
    newest = torch.tensor(max(rounds, default=0))
    dist.all_reduce(newest, dist.ReduceOp.MIN)
    return int(newest)


def train(steps, method, every, folder):
    """Train, and return the accuracy on the test images."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    data = load_digits()
    x, y = (part[rank::ranks] for part in data.train)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    outer = aquila.distributed.Outer(
        model, method, every, server_optimizer="nesterov", server_lr=0.7
    )
    done = 0
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if saved := newest_round(folder):
            state = torch.load(folder / f"rank{rank}-{saved}.pt")
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            outer.load_state_dict(state["outer"])
            done = state["steps"]
    for step in range(done, steps):
        batch = torch.randperm(len(x), generator=torch.Generator().manual_seed(step))[:32]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        record = outer.step(loss)
        if record is not None:
            if rank == 0:
                print(f"round {record.round}  loss {record.loss:.3f}  {record.bytes_sent} bytes")
            if folder is not None:
                save(folder, rank, outer, model, optimizer, step + 1)
    outer.finish()
    with torch.no_grad():
        accuracy = (model(data.test[0]).argmax(1) == data.test[1]).float().mean()
    return float(accuracy), outer.bytes_sent


def save(folder, rank, outer, model, optimizer, steps):
    """Save the state of a rank, and keep that of the round before."""
    state = {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(),
        "outer": outer.state_dict(), "steps": steps,
    }  # fmt: skip
    path = folder / f"rank{rank}-{outer.round}.pt"
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)
    (folder / f"rank{rank}-{outer.round - 2}.pt").unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--method", default="aquila_dither")
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    accuracy, sent = train(args.steps, args.method, args.every, args.folder)
    if dist.get_rank() == 0:
        print(f"accuracy {accuracy:.1%}, {sent} bytes sent per rank")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
