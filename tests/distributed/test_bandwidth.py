"""The token bucket: how long a rank waits for its link."""

import time

import pytest
import torch.distributed as dist

from aquila.distributed import Exchange, TokenBucket
from aquila.distributed.exchange import Kind, Message
from helpers.ranks import run_ranks


class Clock:
    """A clock that only sleeping and `pass_time` advance."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def pass_time(self, seconds):
        self.now += seconds


def test_bytes_take_their_time():
    clock = Clock()
    bucket = TokenBucket(8000, burst_bytes=0, clock=clock, sleep=clock.pass_time)
    bucket.send(500)
    assert clock.now == pytest.approx(0.5)
    bucket.send(250)
    assert clock.now == pytest.approx(0.75)


def test_pause_allows_a_burst_and_no_more():
    clock = Clock()
    bucket = TokenBucket(8000, burst_bytes=100, clock=clock, sleep=clock.pass_time)
    bucket.send(100)
    assert clock.now == 0
    clock.pass_time(60)
    bucket.send(300)
    assert clock.now == pytest.approx(60.2)


def slow_exchange():
    exchange = Exchange(bandwidth=8 * 50_000)
    dist.barrier()
    started = time.monotonic()
    exchange.gather(Message(Kind.TEXT, body=bytes(30_000)))
    return time.monotonic() - started


def test_exchange_respects_its_bandwidth(tmp_path):
    # 30,000 bytes and a header, less a burst of 16,384 bytes, at 50,000 bytes per second
    assert all(seconds >= 0.27 for seconds in run_ranks(tmp_path, slow_exchange))
