"""Ranks whose models are on a GPU, as programs of their own.

They are new processes, because a forked process cannot use CUDA after its parent has.
`python tests/helpers/gpu_ranks.py` runs all checks without pytest, in about a minute.
"""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from math import isclose
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "src"
SECONDS = 120
DRAWS_ON_THE_DEVICE = ("aquila_topk", "qsgd:bits=4")
"""Methods whose random numbers come from torch's generator, which differs between CPU and GPU."""

COMMON = """
import json, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from aquila.core.wire import checksum_of_vector
from aquila.distributed import Exchange, HookState, Outer, hook

backend, device, frames = sys.argv[1:]
dist.init_process_group(backend)
group = dist.group.WORLD if frames == backend else None

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


def run_script(
    script: str, backend: str, device: str, ranks: int, frames: str | None = None
) -> list[dict]:
    """Return what each rank prints.

    Args:
        script: `OUTER` or `HOOK`.
        backend: Backend of the default process group, which DDP uses.
        device: Where the model is.
        ranks: Number of ranks.
        frames: Backend that carries frames. Default: the same.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks)}
    command = [sys.executable, "-c", COMMON + script, backend, device, frames or backend]
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


def check_two_ranks(script: str) -> None:
    """Assert that two ranks on one GPU are equal, and agree with ranks on CPUs."""
    first, second = run_script(script, "gloo", "cuda", ranks=2)
    on_cpu, _ = run_script(script, "gloo", "cpu", ranks=2)
    for method, (checksum, sent, device, values) in first.items():
        assert device == "cuda", method
        assert second[method][0] == checksum, method
        assert isclose(on_cpu[method][1], sent, rel_tol=0.05), method
        pairs = zip(on_cpu[method][3], values, strict=True)
        if method not in DRAWS_ON_THE_DEVICE:
            assert all(isclose(a, b, rel_tol=1e-3, abs_tol=1e-3) for a, b in pairs), method


def check_nccl(script: str) -> None:
    """Assert that a rank on NCCL has the bits of one on gloo; NCCL takes one rank per GPU.

    Frames travel over NCCL, or over a gloo group beside it, which is the default.
    """
    (over_gloo,) = run_script(script, "gloo", "cuda", ranks=1)
    for frames in ("nccl", "gloo"):
        (over_nccl,) = run_script(script, "nccl", "cuda", ranks=1, frames=frames)
        assert over_nccl == over_gloo, frames


def run_all() -> None:
    """Run all checks at the same time, and print each one that passes."""
    checks = [
        (f"{check.__name__}, {name}", check, script)
        for check in (check_two_ranks, check_nccl)
        for name, script in {"outer": OUTER, "hook": HOOK}.items()
    ]
    with ThreadPoolExecutor(len(checks)) as threads:
        started = [(label, threads.submit(check, script)) for label, check, script in checks]
        for label, done in started:
            done.result()
            print(f"{label}: passed", flush=True)


if __name__ == "__main__":
    run_all()
