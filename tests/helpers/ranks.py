"""Runs a function on several ranks, which are processes connected by gloo."""

import itertools
import multiprocessing
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from helpers.namespaces import TwoHosts

JOIN_SECONDS = 60

STORES = itertools.count()
"""Numbers of stores. A rank that ends late deletes its store, so no other may have its name."""


def run_ranks(
    folder: Path,
    function: Callable[..., Any],
    *arguments: Any,
    ranks: int = 2,
    hosts: TwoHosts | None = None,
) -> list:
    """Return function(*arguments) of each rank, or the exception that it raised.

    A rank that ends without a result gives None. With `hosts`, each rank runs on its own host.
    """
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
    store = f"file://{folder}/store-{next(STORES)}"
    meeting = (store if hosts is None else hosts.address, hosts)
    processes = [
        context.Process(
            target=_run, args=(pipe[1], meeting, rank, ranks, function, arguments), daemon=True
        )
        for rank, pipe in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    results = []
    for process, (reader, writer) in zip(processes, pipes, strict=True):
        writer.close()
        result = None
        with suppress(EOFError):
            result = reader.recv() if reader.poll(JOIN_SECONDS) else TimeoutError("the rank hangs")
        results.append(result)
        process.join(5)
        if process.is_alive():
            process.kill()
    return results


def _run(pipe: Any, meeting: Any, rank: int, ranks: int, function: Any, arguments: Any) -> None:
    torch.set_num_threads(1)
    (address, hosts), timeout = meeting, timedelta(seconds=20)
    if hosts is not None:
        hosts.enter(rank)
    dist.init_process_group(
        "gloo", init_method=address, rank=rank, world_size=ranks, timeout=timeout
    )
    try:
        result = function(*arguments)
    except Exception as error:
        traceback.print_exc()
        result = type(error)(*map(str, error.args))
    pipe.send(result)
    pipe.close()
    with suppress(Exception):
        dist.destroy_process_group()
