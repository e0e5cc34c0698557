"""Train with DistributedDataParallel, with gradients that are coded by a hook.

torchrun --nproc-per-node 2 examples/distributed/ddp_hook.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import aquila.distributed
from aquila.tasks.digits import load_digits


def train(steps, method):
    """Train, and return the accuracy on the test images."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    data = load_digits()
    x, y = (part[rank::ranks] for part in data.train)
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), bucket_cap_mb=25
    )
    state = aquila.distributed.HookState(model, method)
    model.register_comm_hook(state, aquila.distributed.hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for step in range(steps):
        batch = torch.randperm(len(x), generator=torch.Generator().manual_seed(step))[:32]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        accuracy = (model.module(data.test[0]).argmax(1) == data.test[1]).float().mean()
    return float(accuracy), state.bytes_sent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--method", default="qsgd:bits=4,norm=l2")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    accuracy, sent = train(args.steps, args.method)
    if dist.get_rank() == 0:
        print(f"accuracy {accuracy:.1%}, {sent} bytes sent per rank")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
