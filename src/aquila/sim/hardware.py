"""Cores, memory and torch settings of the machine."""

import ctypes
import os
import sys

import torch

from aquila.training.flat_module import Precision

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of glibc's mallopt."""


def core_count() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """Return the memory of the machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def configure_torch(device: str, precision: Precision, deterministic: bool) -> None:
    """Configure torch for a run; ValueError if the machine lacks the device."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("this machine has no CUDA GPU; use device = cpu")
    if device == "cuda":
        _keep_freed_memory()
    if device == "cpu":
        torch.set_num_threads(1)  # models are small: a second thread would mostly wait
    allow_tf32 = precision != "float32"
    torch.backends.cuda.matmul.allow_tf32 = allow_tf32
    torch.backends.cudnn.allow_tf32 = allow_tf32
    torch.backends.cudnn.benchmark = not deterministic
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if deterministic != torch.are_deterministic_algorithms_enabled():  # the call imports a compiler
        torch.use_deterministic_algorithms(deterministic)


def _keep_freed_memory() -> None:
    """Let malloc keep large freed blocks, because new pages cost more than a copy."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 2**30)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
