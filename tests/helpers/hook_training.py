"""Training with a DDP module whose gradients go through the hook."""

import torch
import torch._dynamo  # DDP imports it; once here is faster than once per rank
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aquila.distributed import HookState, hook
from helpers.rank_training import make_batch, make_model


def wrap(method, model=None, bucket_cap_mb=0.0005, **options):
    """Return a DDP module whose gradients go through the hook. It has several buckets."""
    model = make_model() if model is None else model
    wrapped = DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)
    state = HookState(wrapped, method, **options)
    wrapped.register_comm_hook(state, hook)
    return wrapped, state


def backward(model, step):
    x, y = make_batch(step, dist.get_rank())
    nn.functional.cross_entropy(model(x), y).backward()


def descend(model, first, steps):
    for step in range(first, first + steps):
        model.zero_grad()
        backward(model, step)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.2 * parameter.grad
