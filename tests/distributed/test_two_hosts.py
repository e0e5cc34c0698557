"""Ranks on two hosts, which are network namespaces with a slow cable between them."""

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from torch import nn

from aquila.distributed import Outer
from helpers.namespaces import TwoHosts
from helpers.ranks import run_ranks

PARAMETERS = 100_000
EXAMPLE = Path(__file__).parents[2] / "examples" / "distributed" / "outer_loop.py"
SECONDS = 120


def train_on_slow_link():
    """Return the weights, and the seconds and bytes of a round, per method."""
    results = {}
    for method in ("fedavg", "aquila_topk"):
        model = nn.Module()
        model.weight = nn.Parameter(torch.zeros(PARAMETERS))
        outer = Outer(model, method, every=1)
        outer.start()
        for step in range(2):
            draw = torch.Generator().manual_seed(10 * step + outer.exchange.rank)
            with torch.no_grad():
                model.weight += torch.randn(PARAMETERS, generator=draw)
            record = outer.step()
        results[method] = model.weight.detach().numpy(), record.seconds, record.bytes_sent
    return results


def test_coded_frames_are_faster_on_a_slow_link(tmp_path):
    if not TwoHosts.are_possible():
        pytest.skip("this process may not make network namespaces")
    with TwoHosts("8mbit") as hosts:
        first, second = run_ranks(tmp_path, train_on_slow_link, hosts=hosts)
    for method, (weights, _, _) in first.items():
        assert (weights == second[method][0]).all()
    _, dense_seconds, dense_bytes = first["fedavg"]
    _, seconds, size = first["aquila_topk"]
    assert dense_bytes > 4 * PARAMETERS
    assert dense_seconds > 0.3  # 400 kB at 8 Mbit/s
    assert size < dense_bytes / 50
    assert seconds < dense_seconds / 2


def node_command(node, hosts, port):
    """Return the command that starts a node, in its namespace or on the loopback interface."""
    if hosts is None:
        address, own, prefix = f"127.0.0.1:{port}", "127.0.0.1", []
    else:
        address, own = "10.213.7.1:29533", f"10.213.7.{node + 1}"
        interface = f"GLOO_SOCKET_IFNAME={hosts.devices[node]}"
        prefix = ["ip", "netns", "exec", hosts.names[node], "env", interface]
    return [
        *prefix, sys.executable, "-m", "torch.distributed.run", "--nnodes", "2",
        "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", address,
        "--rdzv-conf", f"is_host={int(node == 0)}", "--local-addr", own, str(EXAMPLE),
        "--steps", "40",
    ]  # fmt: skip


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_torchrun_meets_on_two_nodes():
    """`torchrun --nnodes 2` in two namespaces, or on the loopback interface without the rights."""
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)
    }  # fmt: skip
    with ExitStack() as stack:
        possible = TwoHosts.are_possible()
        hosts = stack.enter_context(TwoHosts("100mbit")) if possible else None
        port = free_port()
        nodes = [
            subprocess.Popen(
                node_command(node, hosts, port), env=environment, stdout=subprocess.PIPE, text=True
            )
            for node in range(2)
        ]
        try:
            outputs = [node.communicate(timeout=SECONDS)[0] for node in nodes]
        finally:
            for node in nodes:
                node.kill()
    assert [node.returncode for node in nodes] == [0, 0]
    assert "".join(outputs).count("bytes sent per rank") == 1
    assert "".join(outputs).count("round 1 ") == 1
