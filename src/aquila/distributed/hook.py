"""A communication hook for DistributedDataParallel that averages gradients through coded frames.

Every bucket of DDP has its own state, memory and rounds. A bucket is therefore coded and exchanged
as soon as it is complete, while the backward pass computes the next one. One thread runs the
exchanges in the order of the buckets, which is the same on all ranks. Coordinates are ordered by
the number of their parameter, because DDP changes the order within buckets after its first
backward pass. It also distributes the parameters anew then, so most buckets start with an empty
memory a second time. With a single bucket (`bucket_cap_mb` above the size of the model), the
memory stays, and a resumed run continues with the same bits.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._C._distributed_c10d import GradBucket

from aquila.core.method import Method
from aquila.core.parameter import check_whole_number
from aquila.core.state import Arrays
from aquila.core.tensors import Shapes, split_tensors
from aquila.core.vector import Vector
from aquila.distributed.bucket_rounds import BucketRounds, HookSettings
from aquila.distributed.exchange import Exchange
from aquila.distributed.hook_start import HookStart, agree_on_buckets
from aquila.distributed.method_choice import make_method
from aquila.distributed.parameters import checksum_of, flatten, trained_parameters
from aquila.distributed.saved_state import (
    NOT_A_STATE,
    check_saved,
    saved_bytes,
    settings_text,
)
from aquila.runtime.state_file import read_state, state_to_bytes

Parameters = tuple[int, ...]
"""The numbers of the parameters in a bucket, in increasing order."""


class HookState:
    """What the hook keeps between backward passes.

    Args:
        model: The module that DDP wraps, or the DDP module.
        method: A method that compresses gradients, as text such as `"qsgd:bits=4"`, or the result
            of `aquila.create` with `alpha=1`.
        seed: Seed of the method's random numbers, the same on all ranks.
        check_means: Whether the ranks compare a checksum of the weights before the first backward
            pass, and of the last mean gradient before each later one.
        exchange: The links to all ranks. Default: `Exchange()`.

    Attributes:
        bytes_sent: Bytes of all frames that this rank has sent.
        bytes_received: Bytes of all frames that the other ranks have sent.
    """

    def __init__(
        self,
        model: nn.Module,
        method: str | Method,
        *,
        seed: int = 0,
        check_means: bool = True,
        exchange: Exchange | None = None,
    ) -> None:
        chosen = make_method(method, gradients=True)
        seed = check_whole_number("seed", seed, 0)
        self._trained = trained_parameters(model)
        self._numbers = {id(parameter): number for number, parameter in enumerate(self._trained)}
        shapes = tuple(parameter.shape for parameter in self._trained)
        text = settings_text({"method": chosen, "seed": seed}, shapes, torch.float32)
        exchange = Exchange() if exchange is None else exchange
        self._settings = HookSettings(chosen, exchange, seed, check_means, text)
        self._buckets: dict[Parameters, BucketRounds] = {}
        self._used: set[Parameters] = set()
        self._saved: dict[Parameters, Arrays] = {}
        self._started = False
        self._worker = ThreadPoolExecutor(1, "aquila-hook")
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self.bytes_sent = self.bytes_received = 0

    @torch.no_grad()
    def average(self, gradients: Mapping[int, torch.Tensor], is_last: bool) -> None:
        """Replace gradients by their mean over all ranks.

        Args:
            gradients: The gradients of a bucket, by the number of their parameter.
            is_last: Whether this is the last bucket of a backward pass.
        """
        self._start()
        key = tuple(sorted(gradients))
        tensors = [gradients[number] for number in key]
        gradient = flatten(tensors, _dtype_of(tensors))
        shapes = tuple(tensor.shape for tensor in tensors)
        mean, sent, received = self._rounds_of(key, shapes, gradient).average(gradient)
        for tensor, part in zip(tensors, split_tensors(mean, shapes), strict=True):
            tensor.copy_(part.view(tensor.shape))
        self.bytes_sent += sent
        self.bytes_received += received
        if is_last:
            self._buckets = {k: v for k, v in self._buckets.items() if k in self._used}
            self._used = set()

    def submit(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Average a bucket on the thread of this state; return the future of its buffer."""
        numbers = [self._numbers.get(id(parameter), -1) for parameter in bucket.parameters()]
        if -1 in numbers:
            raise ValueError("the bucket has parameters of another module than that of HookState")
        # not the bucket itself, because DDP may reuse it
        gradients, is_last = dict(zip(numbers, bucket.gradients(), strict=True)), bucket.is_last()
        buffer, errors = bucket.buffer(), list[Exception]()
        ready: torch.cuda.Event | None = None
        done = torch.futures.Future[torch.Tensor](devices=[buffer.device] * buffer.is_cuda)
        if buffer.is_cuda:
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record(torch.cuda.current_stream(buffer.device))

        def run() -> None:
            with self._stream_after(ready, buffer.device):
                try:
                    self.average(gradients, is_last)
                except Exception as error:
                    errors.append(error)
                done.set_result(buffer)

        def result(_: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            if errors:
                raise errors[0]
            return buffer

        self._worker.submit(run)
        # DDP reads the value of a future with `set_exception`, and hides the message
        return done.then(result)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that `load_state_dict` needs, between two backward passes."""
        counters = {"bytes": np.asarray([self.bytes_sent, self.bytes_received])}
        states = self._saved | {key: b.to_arrays() for key, b in self._buckets.items()}
        exchange = self._settings.exchange
        own = {"buckets": state_to_bytes(counters | _join_buckets(states))}
        return {
            "settings": self._settings.text, "ranks": exchange.size, f"rank_{exchange.rank}": own
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, or raise ValueError and change nothing.

        The error says whether the state is damaged, of other settings or of another rank. With
        another number of ranks than before, all memories start anew. Ranks that load no state get
        the snapshot of the others at the next backward pass.
        """
        exchange = self._settings.exchange
        own, _ = check_saved(state, self._settings.text, exchange.rank, exchange.size)
        saved: dict[Parameters, Arrays] = {}
        counters = self.bytes_sent, self.bytes_received
        if own is not None:
            arrays = read_state(saved_bytes(own, "buckets"))
            counters = _read_counters(arrays.pop("bytes", None))
            saved = _split_buckets(arrays)
            for key, part in saved.items():
                self._new_bucket(key).restore(part)  # raises ValueError if it is damaged
        self._buckets, self._saved, self._started = {}, saved, False
        self.bytes_sent, self.bytes_received = counters

    def _start(self) -> None:
        """Compare settings and weights with all ranks; a new rank gets their snapshot."""
        if self._started:
            return
        weights = checksum_of(self._trained) if self._settings.check_means else 0
        own = HookStart(_join_buckets(self._saved), weights)
        agreed = agree_on_buckets(self._settings, own, self._with_empty_memories)
        self._saved, self._started = _split_buckets(agreed), True

    def _with_empty_memories(self, snapshot: Arrays) -> Arrays:
        """Return the state of a rank that joins."""
        buckets = {}
        for key, arrays in _split_buckets(snapshot).items():
            bucket = self._new_bucket(key)
            bucket.join(arrays)
            buckets[key] = bucket.to_arrays()
        return _join_buckets(buckets)

    def _new_bucket(self, key: Parameters) -> BucketRounds:
        """Return a bucket with these parameters; ValueError if there are no such parameters."""
        if not set(key) <= set(range(len(self._trained))):
            raise ValueError(f"the state is damaged: there are no parameters {key}")
        tensors = [self._trained[number] for number in key]
        like = torch.empty(0, dtype=_dtype_of(tensors), device=tensors[0].device)
        shapes = tuple(tensor.shape for tensor in tensors)
        return BucketRounds(self._settings, key, shapes, like)

    def _rounds_of(self, key: Parameters, shapes: Shapes, like: Vector) -> BucketRounds:
        self._used.add(key)
        if key not in self._buckets:
            self._buckets[key] = BucketRounds(self._settings, key, shapes, like)
            if key in self._saved:
                self._buckets[key].restore(self._saved.pop(key))
        return self._buckets[key]

    def _stream_after(
        self, ready: torch.cuda.Event | None, device: torch.device
    ) -> AbstractContextManager[Any]:
        """Return a context on a stream of its own, so that the backward pass goes on."""
        if ready is None:
            return nullcontext()
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._streams[device].wait_event(ready)
        return torch.cuda.stream(self._streams[device])


def _dtype_of(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """Return the type in which gradients are averaged."""
    wide = any(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if wide else torch.float32


def _read_counters(array: Any) -> tuple[int, int]:
    """Return the bytes sent and received of a saved state."""
    if array is None or array.shape != (2,):
        raise ValueError(NOT_A_STATE)
    sent, received = array.tolist()
    return int(sent), int(received)


def _join_buckets(buckets: Mapping[Parameters, Arrays]) -> Arrays:
    """Return the arrays of all buckets, with the parameters of a bucket before their names."""
    return {
        f"{' '.join(map(str, key))}/{name}": array
        for key, arrays in buckets.items()
        for name, array in arrays.items()
    }


def _split_buckets(arrays: Arrays) -> dict[Parameters, Arrays]:
    """Return the arrays of each bucket; ValueError for a name that `_join_buckets` never gives."""
    buckets: dict[Parameters, Arrays] = {}
    for name, array in arrays.items():
        numbers, slash, field = name.partition("/")
        if not slash or not all(number.isdecimal() for number in numbers.split()):
            raise ValueError(f"the state is damaged: there is no part {name!r}")
        buckets.setdefault(tuple(map(int, numbers.split())), {})[field] = array
    return buckets


def hook(state: HookState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients, for `DistributedDataParallel.register_comm_hook`."""
    return state.submit(bucket)
