"""A small model, and its training on the batches of each rank."""

import torch
import torch.distributed as dist
from torch import nn


def make_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))


def make_batch(step, rank):
    draw = torch.Generator().manual_seed(1000 * rank + step)
    x = torch.randn(16, 6, generator=draw)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def local_step(model, step):
    """Take a step of gradient descent, and return the loss."""
    x, y = make_batch(step, dist.get_rank())
    loss = nn.functional.cross_entropy(model(x), y)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, trained)
    with torch.no_grad():
        for parameter, gradient in zip(trained, gradients, strict=True):
            parameter -= 0.2 * gradient
    return loss


def train(outer, model, steps, first=0):
    """Take local steps, and return the loss of the last batch."""
    for step in range(first, first + steps):
        loss = local_step(model, step)
        outer.step(loss)
    return float(loss.detach())


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])
