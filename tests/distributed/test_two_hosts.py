"""Ranks on two hosts, which are network namespaces with a slow cable between them."""

import pytest
import torch
from torch import nn

from aquila.distributed import Outer
from helpers.namespaces import TwoHosts
from helpers.ranks import run_ranks

PARAMETERS = 100_000


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
