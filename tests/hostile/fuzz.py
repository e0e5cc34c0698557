"""Frames of every kind and mode, damaged and sealed again: a sound packet or WireError comes out.

`python tests/hostile/fuzz.py --frames 1000000 --seed 0` prints what was read and what was refused.
On the first frame for which anything else happens, that frame is written to a file and the command
fails; `--read FILE` reads it again.
"""

import argparse
import struct
import sys
import time
from collections import Counter
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1]))

from aquila.core import wire
from aquila.core.packet import Codes, Dense, WireError
from aquila.core.wire import pack, unpack
from helpers import frame_reader
from helpers.frame_mutations import mutated_frames

KINDS = ["empty", "dense", "fixed", "coded", "dithered", "unknown"]
LIMIT = 2**20  # coordinates without being asked, so that memory measures lies and not honest size
MAX_MEMORY_MB = 300  # megabytes beyond what was there before
REPORT_EVERY = 25_000


def content(packet):
    """Return all that a packet holds, to the last bit."""
    vector = packet.vector
    around = (
        packet.round, packet.ack, packet.refused, packet.answers, packet.fresh,
        tuple(packet.scalars), type(vector),
    )  # fmt: skip
    scalars = struct.pack(f"<{len(packet.scalars)}d", *packet.scalars.values())
    if vector is None:
        return around, scalars
    values = vector.decode()
    assert torch.isfinite(values).all()
    if isinstance(vector, Dense):
        return around, scalars, values.dtype, values.numpy().tobytes()
    tensors = vector.codes, vector.low, vector.step, values
    parts = [(tensor.dtype, tensor.numpy().tobytes()) for tensor in tensors]
    return around, scalars, vector.bits, vector.bucket, vector.dither_seed, parts


def read_or_none(frame, dimension=None):
    """Return the packet of a frame, or None if it is refused; both must be done rightly."""
    try:
        packet = unpack(frame, dimension)
    except WireError:
        return None
    assert content(unpack(pack(packet), dimension)) == content(packet), "written again, it differs"
    return packet


def assert_second_reader_agrees(frame, dimension, packet):
    try:
        second = frame_reader.read(frame, dimension)
    except frame_reader.FrameError:
        second = None
    assert (second is None) == (packet is None), "only one of two readers refuses"
    if second is None:
        return
    for field in ("round", "ack", "refused", "answers", "fresh"):
        assert getattr(second, field) == getattr(packet, field), field
    assert list(second.scalars.items()) == list(packet.scalars.items())
    vector = packet.vector
    values = [] if vector is None else vector.decode().tolist()
    letters = f"<{len(values)}d"
    assert struct.pack(letters, *second.values) == struct.pack(letters, *values)
    if isinstance(vector, Codes):
        for field in ("bits", "bucket", "dither_seed"):
            assert getattr(second, field) == getattr(vector, field), field
        assert second.codes == vector.codes.tolist()
        grids = [*vector.low.tolist(), *vector.step.tolist()]
        letters = f"<{len(grids)}d"
        assert struct.pack(letters, *second.low, *second.step) == struct.pack(letters, *grids)


def examine(frame, dimension, second):
    """Read a frame with and without the dimension that is expected; return its kind and outcome."""
    unasked = read_or_none(frame)
    asked = read_or_none(frame, dimension)
    if second:
        assert_second_reader_agrees(frame, None, unasked)
        assert_second_reader_agrees(frame, dimension, asked)
    assert asked is None or content(asked) == content(unasked)
    kind = KINDS[min(frame[5], len(KINDS) - 1)] if len(frame) > 5 else "unknown"
    return kind, "refused" if unasked is None else "read"


def peak_megabytes():
    import resource  # here, since Windows has none and the rest runs there, too

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def set_limit():
    wire.UNCHECKED_DIMENSION_LIMIT = frame_reader.LIMIT = LIMIT


def fuzz(seed, count, second_reader_every, report=lambda done, outcomes: None):
    """Examine frames; return how often which kind had which outcome, or raise with the frame."""
    outcomes = Counter()
    for number, (frame, dimension) in enumerate(mutated_frames(seed, count)):
        try:
            outcomes[examine(frame, dimension, second=number % second_reader_every == 0)] += 1
        except Exception as problem:
            problem.frame = frame
            raise
        if (number + 1) % REPORT_EVERY == 0:
            report(number + 1, outcomes)
    return outcomes


def summary(outcomes):
    return ", ".join(
        f"{kind} {outcomes[kind, 'read']} read {outcomes[kind, 'refused']} refused"
        for kind in KINDS
        if outcomes[kind, "read"] + outcomes[kind, "refused"]
    )


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--frames", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--second", type=int, default=10, help="second reader: 1 frame in so many")
    options.add_argument("--out", type=Path, default=Path("fuzz-failure.frame"))
    options.add_argument("--read", type=Path, help="examine the frame in this file")
    args = options.parse_args()
    set_limit()
    torch.set_num_threads(1)
    if args.read:
        frame = args.read.read_bytes()
        print(*examine(frame, int.from_bytes(frame[20:24], "little"), second=True))
        return
    before, started = peak_megabytes(), time.perf_counter()

    def report(done, outcomes):
        rate = done / (time.perf_counter() - started)
        print(f"{done} frames, {rate:.0f} a second: {summary(outcomes)}", flush=True)

    try:
        outcomes = fuzz(args.seed, args.frames, args.second, report)
    except Exception as problem:
        args.out.write_bytes(problem.frame)
        print(f"{type(problem).__name__}: {problem}\nthe frame is in {args.out}")
        sys.exit(1)
    if args.frames % REPORT_EVERY:
        report(args.frames, outcomes)
    growth = peak_megabytes() - before
    print(f"memory grew by {growth:.0f} MB at most")
    sys.exit(growth > MAX_MEMORY_MB)


if __name__ == "__main__":
    main()
