"""Rounds of relayed bodies: docs/wire-format-relayed.md."""

from dataclasses import dataclass

from helpers.frame_reader.header import DENSE, DITHERED, REFUSED, read_header
from helpers.frame_reader.source import check


@dataclass(frozen=True)
class Round:
    """The replies of a round, and how the model has changed with them."""

    base: int
    factor: float
    weights: list[float]
    frames: list[bytes]


def read_rounds(source):
    """Return the rounds up to the end of a body. The bodies of their replies are not read."""
    rounds = []
    while source.bits_left > 0 or not rounds:
        base, (factor,) = source.bits(32), source.floats(1, "d")
        check(base > 0, "a base of 0")
        one = Round(base, factor, [], [])
        for _ in range(source.varint()):
            one.weights.extend(source.floats(1, "d"))
            one.frames.append(source.bytes(source.varint()))
            header, _ = read_header(one.frames[-1])
            check(DENSE <= header.kind <= DITHERED, "a relayed reply without an upload")
            check(not header.flags & REFUSED, "a relayed reply is refused, but with a vector")
        rounds.append(one)
    return rounds
