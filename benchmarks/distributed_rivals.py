"""Rivals of distributed.py: ways to train on all ranks, each with the bytes that it sends."""

import warnings
from contextlib import nullcontext

import torch
import torch.distributed as dist
from distributed_variants import VARIANTS
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from aquila.distributed import Exchange, HookState, Outer, TokenBucket, hook

DILOCO = {"server_optimizer": "nesterov", "server_lr": 0.7, "server_momentum": 0.9}
UNSENT = {**DILOCO, "keep_unsent": True}
FLUSH = {**UNSENT, "flush": "eden:bits=2"}
"""The last exchange sends what is still unsent, at two bits per coordinate."""
AVERAGE_FLUSH = {"keep_unsent": True, "flush": "eden:bits=2"}
"""The same without an outer optimizer."""

PEAK_300 = "aquila_peak:density=0.0143,memory=none"

RIVALS = {
    "ddp": ("ddp", "dense"),
    "ddp_fp16": ("ddp", "fp16"),
    "ddp_powersgd_1": ("ddp", 1),
    "ddp_powersgd_2": ("ddp", 2),
    "ddp_powersgd_4": ("ddp", 4),
    "hook_aquila_topk": ("hook", "aquila_topk:density=0.01"),
    "hook_qsgd": ("hook", "qsgd:bits=4,norm=l2"),
    "diloco": ("outer", "fedavg", DILOCO),
    "average": ("outer", "fedavg", {}),
    "sparseloco": ("outer", "sparseloco", {}),
    "sparseloco_300": ("outer", "sparseloco:density=0.0115", {}),
    "sparseloco_320": ("outer", "sparseloco:density=0.0107", {}),
    "sparseloco_0.005": ("outer", "sparseloco:density=0.005", {}),
    "outer_aquila_topk": ("outer", "aquila_topk", DILOCO),
    "outer_aquila_topk_sgd": ("outer", "aquila_topk:density=0.01", {}),
    "outer_aquila_topk_300": ("outer", "aquila_topk:density=0.0115", DILOCO),
    "outer_aquila_topk_300_sgd": ("outer", "aquila_topk:density=0.0115", {}),
    "outer_aquila_topk_0.003": ("outer", "aquila_topk:density=0.003", DILOCO),
    "outer_aquila_dither": ("outer", "aquila_dither", DILOCO),
    "outer_aquila_dither_300": ("outer", "aquila_dither:density=0.045", DILOCO),
    "outer_aquila_peak_300": ("outer", PEAK_300, DILOCO),
    "outer_aquila_peak_300_avg": ("outer", PEAK_300, {}),
    "outer_unsent_300": ("outer", "sparseloco:beta=0,density=0.0115", UNSENT),
    "outer_unsent_100": ("outer", "sparseloco:beta=0,density=0.036", UNSENT),
    "outer_unsent_600": ("outer", "sparseloco:beta=0,density=0.0053", UNSENT),
    "outer_flush_300": ("outer", "sparseloco:beta=0,density=0.008", FLUSH),
    "outer_flush_300_0.7": (
        "outer",
        "sparseloco:beta=0,density=0.008",
        {**FLUSH, "server_momentum": 0.7},
    ),
    "outer_flush_400_0.7": (
        "outer",
        "sparseloco:beta=0,density=0.006",
        {**FLUSH, "server_momentum": 0.7},
    ),
    "outer_flush_300_avg": ("outer", "sparseloco:beta=0,density=0.0045", AVERAGE_FLUSH),
    "outer_flush3_300_avg": (
        "outer",
        "sparseloco:beta=0,density=0.0018",
        {**AVERAGE_FLUSH, "flush": "eden:bits=3"},
    ),
    "outer_flush3_300": (
        "outer",
        "sparseloco:beta=0,density=0.0018",
        {**FLUSH, "flush": "eden:bits=3"},
    ),
    "outer_flush4_300": (
        "outer",
        "sparseloco:beta=0,density=0.008",
        {**FLUSH, "flush": "eden:bits=4"},
    ),
    "outer_flush1_300_avg": (
        "outer",
        "sparseloco:beta=0,density=0.0005",
        {**AVERAGE_FLUSH, "flush": "eden:bits=1"},
    ),
    "outer_unsent_300_0.7": (
        "outer",
        "sparseloco:beta=0,density=0.0115",
        {**UNSENT, "server_momentum": 0.7},
    ),
    "outer_unsent_300_sgd": (
        "outer",
        "sparseloco:beta=0,density=0.0115",
        {"keep_unsent": True},
    ),
    "outer_qsgd": ("outer", "qsgd:bits=4,norm=l2", DILOCO),
    **{name: ("outer", method, {}) for name, method in VARIANTS.items()},
}
"""Kind of exchange, what it sends, and the options of the outer loop. A suffix 300 means about 300
times fewer bytes than DiLoCo."""

ONE_BUCKET = 10_000
"""Megabytes. PowerSGD reduces the factors of a bucket in callbacks. With several buckets on gloo,
their order differs between ranks, and a rank fails."""

DENSE = {"ddp": "ddp", "hook": "ddp", "outer": "diloco"}
"""The dense rival with the same number of exchanges, per kind."""

SHORT = (
    "ddp", "ddp_fp16", "ddp_powersgd_1", "ddp_powersgd_2", "ddp_powersgd_4", "diloco",
    "sparseloco", "outer_aquila_topk_sgd", "outer_aquila_dither", "hook_aquila_topk",
)  # fmt: skip


class CountedReduce:
    """Replaces `dist.all_reduce`: counts its bytes, and waits for a slow link.

    In a ring, a rank sends 2 (n - 1) / n times the tensor. Gathered frames are sent n - 1 times.
    """

    def __init__(self, bandwidth):
        self.bytes_sent = self.link_bytes = 0
        self._bucket = TokenBucket(bandwidth) if bandwidth else None
        self._reduce, ranks = dist.all_reduce, dist.get_world_size()
        self._factor = 2 * (ranks - 1) / ranks

    def __call__(self, tensor, *args, async_op=False, **kwargs):
        self.bytes_sent += tensor.nbytes
        size = round(self._factor * tensor.nbytes)
        self.link_bytes += size
        if self._bucket is not None:
            self._bucket.send(size)
        if not tensor.is_cuda:
            return self._reduce(tensor, *args, async_op=async_op, **kwargs)
        # NCCL refuses several ranks on one GPU, and gloo sends from the host
        staged = tensor.cpu()
        self._reduce(staged, *args, **kwargs)
        tensor.copy_(staged)
        return FinishedWork(tensor) if async_op else None


class FinishedWork:
    """The result of a reduction that is already complete."""

    def __init__(self, tensor):
        self._tensor = tensor

    def wait(self):
        return True

    def get_future(self):
        future = torch.futures.Future(devices=[self._tensor.device])
        future.set_result([self._tensor])
        return future


class Rival:
    """Trains a task with one of the rivals.

    Attributes:
        model: What the forward pass calls.
        bytes_sent: Bytes of payload of this rank: tensors or frames.
        link_bytes: Bytes that the rank sends over its link, with padding and headers.
    """

    def __init__(self, name, task, every, bandwidth):
        kind, choice, *options = RIVALS[name]
        self.outer, self.model = None, task.model
        if kind == "outer":
            exchange, options = Exchange(bandwidth=bandwidth), dict(options[0])
            self._flush = options.pop("flush", None)
            self.outer = Outer(task.model, choice, every, exchange=exchange, **options)
            self._payload, self._link = self.outer, exchange
            return
        # all ranks make the same model, and evaluations compute the statistics of batch norms
        with warnings.catch_warnings():
            # newer versions of torch prefer another name
            warnings.simplefilter("ignore", FutureWarning)
            self.model = DistributedDataParallel(
                task.model, broadcast_buffers=False, init_sync=False,
                bucket_cap_mb=ONE_BUCKET if isinstance(choice, int) else None,
            )  # fmt: skip
        if kind == "hook":
            exchange = Exchange(bandwidth=bandwidth)
            self._payload, self._link = HookState(self.model, choice, exchange=exchange), exchange
            self.model.register_comm_hook(self._payload, hook)
            return
        self._payload = self._link = CountedReduce(bandwidth)
        dist.all_reduce = self._payload
        self._register_reduce(choice)

    def _register_reduce(self, choice):
        if isinstance(choice, int):
            state = powerSGD_hook.PowerSGDState(
                None, matrix_approximation_rank=choice, start_powerSGD_iter=10
            )
            self.model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        else:
            hooks = {
                "dense": default_hooks.allreduce_hook,
                "fp16": default_hooks.fp16_compress_hook,
            }
            self.model.register_comm_hook(None, hooks[choice])

    def after_batch(self, loss):
        if self.outer is not None:
            self.outer.step(loss)

    def finish(self):
        """Give all ranks the same weights after the last batch."""
        if self.outer is not None:
            self.outer.finish(self._flush)

    def evaluated_weights(self):
        """Return a context in which the model has the weights that all ranks share."""
        return nullcontext() if self.outer is None else self.outer.shared_weights()

    @property
    def bytes_sent(self):
        return self._payload.bytes_sent

    @property
    def link_bytes(self):
        return self._link.link_bytes
