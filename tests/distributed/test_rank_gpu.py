"""Ranks whose models are on a GPU: equal ranks, the results of CPUs, and frames over NCCL.

The ranks are new processes, because a forked process cannot use CUDA after its parent has.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
SOURCES = Path(__file__).resolve().parents[2] / "src"
SECONDS = 120

COMMON = """
import json, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from aquila.core.wire import checksum_of_vector
from aquila.distributed import Exchange, HookState, Outer, hook

backend, device = sys.argv[1:]
dist.init_process_group(backend)
group = dist.group.WORLD

def change(step):
    draw = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return torch.randn(20_000, generator=draw).to(device)

class Weights(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(20_000, device=device))

    def forward(self, x):
        return (self.weight * x).sum()

def result(model, counted):
    weights = model.weight.detach()
    checksum = checksum_of_vector(weights)
    return [checksum, counted.bytes_sent, str(weights.device)[:4], weights[:50].tolist()]
"""

OUTER = """
results = {}
for method in ("aquila_topk", "aquila_dither", "sparseloco:beta=0", "qsgd:bits=4", "fedavg"):
    model = Weights()
    options = {"server_optimizer": "nesterov", "server_lr": 0.7}
    options["keep_unsent"] = method.startswith("sparseloco")
    outer = Outer(model, method, every=2, exchange=Exchange(group), **options)
    for step in range(6):
        with torch.no_grad():
            model.weight += change(step)
        outer.step(1.0)
    outer.finish(flush="eden:bits=4" if options["keep_unsent"] else None)
    results[method] = result(model, outer)
print(json.dumps(results))
"""

HOOK = """
results = {}
for method in ("aquila_topk", "qsgd:bits=4"):
    model = DistributedDataParallel(Weights(), init_sync=False)
    state = HookState(model, method, exchange=Exchange(group))
    model.register_comm_hook(state, hook)
    for step in range(4):
        model.zero_grad()
        model(change(step)).backward()
        with torch.no_grad():
            model.module.weight -= 0.5 * model.module.weight.grad
    results[method] = result(model.module, state)
print(json.dumps(results))
"""


def run_script(script: str, backend: str, device: str, ranks: int) -> list[dict]:
    """Return what each rank prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks)}
    command = [sys.executable, "-c", COMMON + script, backend, device]
    started = [
        subprocess.Popen(
            command, env={**shared, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(ranks)
    ]
    try:
        return [json.loads(rank.communicate(timeout=SECONDS)[0]) for rank in started]
    finally:
        for rank in started:
            rank.kill()


@needs_gpu
@pytest.mark.parametrize("script", [OUTER, HOOK], ids=["outer", "hook"])
def test_ranks_on_a_gpu_are_equal_and_agree_with_a_cpu(script):
    first, second = run_script(script, "gloo", "cuda", ranks=2)
    on_cpu, _ = run_script(script, "gloo", "cpu", ranks=2)
    for method, (checksum, sent, device, values) in first.items():
        assert device == "cuda", method
        assert second[method][0] == checksum, method
        assert on_cpu[method][1] == pytest.approx(sent, rel=0.01), method
        assert on_cpu[method][3] == pytest.approx(values, rel=1e-3, abs=1e-3), method


@needs_gpu
@pytest.mark.parametrize("script", [OUTER, HOOK], ids=["outer", "hook"])
def test_frames_travel_over_nccl(script):
    """NCCL allows one rank per GPU, so this is a group of one rank."""
    (over_nccl,) = run_script(script, "nccl", "cuda", ranks=1)
    (over_gloo,) = run_script(script, "gloo", "cuda", ranks=1)
    assert over_nccl == over_gloo
