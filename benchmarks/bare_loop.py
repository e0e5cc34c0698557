"""A training loop in plain PyTorch with its own best settings, for `round_time.py`.

It trains one model on minibatches that are ready in memory, one after another, and sends nothing.
It uses torch's SGD and nothing of AQUILA. Each of its settings is measured, and the best counts.
"""

import copy
import statistics
import time
from functools import partial

import torch

PRECISIONS = {"bf16": torch.bfloat16}
WARM_UP_STEPS = 3

SETTINGS = {
    "plain": {},
    "channels_last": {"channels_last": True},
    "graphs": {"graphs": True},
    "graphs, channels_last": {"graphs": True, "channels_last": True},
    "compiled, channels_last": {"compiled": True, "channels_last": True},
    "graphs, compiled, channels_last": {"graphs": True, "compiled": True, "channels_last": True},
}


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


class BareLoop:
    """A model, its optimizer and the captured graphs of a step, one per shape of minibatches."""

    def __init__(self, module, loss, args, graphs=False, channels_last=False, compiled=False):
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        self.module = copy.deepcopy(module).to(args.device).train()
        if channels_last:
            self.module = self.module.to(memory_format=self.layout)
        self.loss, self.device, self.dtype = loss, args.device, PRECISIONS.get(args.precision)
        fused = {"fused": True} if args.device == "cuda" else {}
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01, **fused)
        self.compute = torch.compile(self.forward) if compiled else self.forward
        self.captured = {} if graphs else None

    def forward(self, x, y):
        with torch.autocast(self.device, self.dtype, self.dtype is not None, cache_enabled=False):
            outputs = self.module(x)
        return self.loss(outputs.float(), y)

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        self.compute(x, y).backward()
        self.optimizer.step()

    def capture(self, x, y):
        """Return the graph of a step and its inputs."""
        x, y, stream = x.clone(memory_format=torch.preserve_format), y.clone(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                self.step(x, y)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(x, y)
        return graph, x, y

    def train(self, batches):
        for x, y in batches:
            if self.captured is None:
                self.step(x, y)
                continue
            if x.shape not in self.captured:
                self.captured[x.shape] = self.capture(x, y)
            graph, inputs, targets = self.captured[x.shape]
            inputs.copy_(x)
            targets.copy_(y)
            graph.replay()

    def prepared(self, batches):
        """Return the minibatches in the memory format of the model."""
        if self.layout is torch.contiguous_format:
            return [(x.contiguous(), y) for x, y in batches]
        return [(x.contiguous(memory_format=self.layout), y) for x, y in batches]


def median_seconds(work, repeats, device):
    """Return the median seconds of a call, including queued GPU work; the first one warms up."""
    seconds = []
    for _ in range(repeats + 1):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def settings_for(batches, names, device):
    """Return the settings that apply: graphs need a GPU, channels_last needs images."""
    images = batches[0][0].ndim == 4
    kept = {}
    for name in names:
        options = dict(SETTINGS[name])
        if not images and options.get("channels_last"):
            options.pop("channels_last")
        if (device == "cuda" or not options.get("graphs")) and options not in kept.values():
            kept[name if images else name.replace(", channels_last", "")] = options
    return kept


def bare_seconds(module, loss, batches, args):
    """Return seconds per pass over the minibatches for each of the settings."""
    seconds = {}
    for name, options in settings_for(batches, args.bare, args.device).items():
        loop = BareLoop(module, loss, args, **options)
        ready = loop.prepared(batches)
        seconds[name] = median_seconds(partial(loop.train, ready), args.rounds, args.device)
    return seconds
