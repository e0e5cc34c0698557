"""Run any AQUILA method on torch.distributed, without a server.

Every rank has its own copy of the server half. A round is one all-gather of coded frames.

outer = aquila.distributed.Outer(model, method="aquila_topk", every=50)   # outer.step() per batch
model.register_comm_hook(aquila.distributed.HookState(model, "qsgd"), aquila.distributed.hook)
"""

from aquila.distributed.bandwidth import TokenBucket
from aquila.distributed.exchange import Exchange, ExchangeError
from aquila.distributed.hook import HookState, hook
from aquila.distributed.outer import Outer
from aquila.distributed.records import RoundRecord

__all__ = [
    "Exchange",
    "ExchangeError",
    "HookState",
    "Outer",
    "RoundRecord",
    "TokenBucket",
    "hook",
]
