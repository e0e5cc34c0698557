"""A plain PyTorch loop over the devices with default threads, the unit of all ratios."""

import torch
from torch.nn.functional import cross_entropy

from peers.workload import ALPHA


def run(workload, log):
    model, shards = workload.model(), workload.shards()
    optimizer = torch.optim.SGD(model.parameters(), lr=ALPHA)
    for _ in range(workload.rounds):
        optimizer.zero_grad()
        total = torch.zeros(())
        for x, y in shards:
            loss = cross_entropy(model(x), y) / len(shards)
            loss.backward()  # gradients of all devices accumulate
            total += loss.detach()
        optimizer.step()
        log.end_round(total)
