"""A rank that ends before all ranks have met: the others say so and do not hang."""

import pytest
import torch.distributed as dist

from aquila.distributed import Exchange, ExchangeError
from helpers.rank_faults import error_and_seconds, fail_on_rank_1
from helpers.ranks import run_ranks


def meet_without_one(how):
    fail_on_rank_1(how)
    if dist.get_rank() == 1:
        return None
    return error_and_seconds(ExchangeError, Exchange, None, 1)


@pytest.mark.parametrize("how", ["kill", "hang"])
def test_rank_that_is_missing_at_the_start(tmp_path, how):
    first, _, third = run_ranks(tmp_path, meet_without_one, how, ranks=3)
    for message, seconds in (first, third):
        assert message.startswith(
            "the start: another rank has ended, or has not answered within 1 s; restart all ranks"
        )
        assert seconds < 10
