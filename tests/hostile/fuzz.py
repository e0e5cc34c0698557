"""Decode damaged frames of every kind and mode: the result is a valid packet or WireError.

`python tests/hostile/fuzz.py --frames 1000000 --seed 0` prints how many frames of each kind were
read and refused. It stops at the first frame that gives anything else, and writes that frame to a
file; `--read FILE` decodes the file again. `make fuzz` runs it with sanitizers in the C code.
"""

import argparse
import struct
import sys
import time
from collections import Counter
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1]))

from aquila.core import envelope
from aquila.core.packet import Codes, Dense, RelayedUploads, WireError
from aquila.core.wire import pack, unpack
from aquila.native import coder
from helpers import frame_reader
from helpers.frame_mutations import mutated_frames, raw_header

KINDS = ["empty", "dense", "fixed", "coded", "dithered", "relayed", "unknown"]
LIMIT = 2**20  # largest dimension without an expected one; keeps valid frames small in memory
MAX_GROWTH = 300  # megabytes of memory
REPORT_EVERY = 25_000


def content(packet):
    """Return everything that a packet contains, bit for bit."""
    vector = packet.vector
    header = (
        packet.round, packet.ack, packet.refused, packet.refers_to, packet.fresh,
        tuple(packet.scalars), type(vector),
    )  # fmt: skip
    scalars = struct.pack(f"<{len(packet.scalars)}d", *packet.scalars.values())
    if vector is None:
        return header, scalars
    if isinstance(vector, RelayedUploads):
        return header, scalars, vector.dimension, vector.dtype, content_of_rounds(vector.rounds)
    values = vector.decode()
    assert torch.isfinite(values).all()
    if isinstance(vector, Dense):
        return header, scalars, values.dtype, values.numpy().tobytes()
    tensors = vector.codes, vector.low, vector.step, values
    parts = [(tensor.dtype, tensor.numpy().tobytes()) for tensor in tensors]
    return header, scalars, vector.bits, vector.bucket, vector.dither_seed, parts


def content_of_rounds(rounds):
    """Return base, factor, weights and frames of each relayed round, bit for bit."""
    return [
        (one.base, struct.pack(f"<{1 + len(one.weights)}d", one.factor, *one.weights), *one.frames)
        for one in rounds
    ]


def relayed_frames(packet):
    """Return the frames of replies in a packet."""
    if packet is None or not isinstance(packet.vector, RelayedUploads):
        return []
    return [frame for one in packet.vector.rounds for frame in one.frames]


def read_or_none(frame, dimension=None):
    """Return the packet of a frame, or None if it is refused; fail if it does not round-trip."""
    try:
        packet = unpack(frame, dimension)
    except WireError:
        return None
    again = unpack(pack(packet), dimension)
    assert content(again) == content(packet), "the packet changes when written and read again"
    return packet


def assert_second_reader_agrees(frame, dimension, packet):
    try:
        second = frame_reader.read(frame, dimension)
    except frame_reader.FrameError:
        second = None
    assert (second is None) == (packet is None), "only one of the two readers refuses the frame"
    if second is None:
        return
    for field in ("round", "ack", "refused", "refers_to", "fresh"):
        assert getattr(second, field) == getattr(packet, field), field
    assert list(second.scalars.items()) == list(packet.scalars.items())
    vector = packet.vector
    if isinstance(vector, RelayedUploads):
        dtype = torch.float64 if second.double else torch.float32
        assert (vector.dimension, vector.dtype) == (second.dimension, dtype)
        assert content_of_rounds(vector.rounds) == content_of_rounds(second.rounds)
        return
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


def examine(frame, dimension, use_second_reader):
    """Read a frame with and without an expected dimension; return its kind and the outcome."""
    packet = read_or_none(frame)
    checked_packet = read_or_none(frame, dimension)
    if use_second_reader:
        assert_second_reader_agrees(frame, None, packet)
        assert_second_reader_agrees(frame, dimension, checked_packet)
    assert checked_packet is None or content(checked_packet) == content(packet)
    for reply in relayed_frames(packet):
        examine(reply, None, use_second_reader)
    kind = KINDS[min(frame[1] & 7, len(KINDS) - 1)] if len(frame) > 1 else "unknown"
    return kind, "refused" if packet is None else "read"


def peak_megabytes():
    import resource  # not at the top, because Windows has no such module

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def set_limit():
    envelope.UNCHECKED_DIMENSION_LIMIT = frame_reader.LIMIT = LIMIT


def fuzz(seed, count, second_reader_every, report=lambda done, outcomes: None):
    """Examine frames; return the number per kind and outcome. An exception carries the frame."""
    outcomes = Counter()
    for number, (frame, dimension) in enumerate(mutated_frames(seed, count)):
        try:
            use_second_reader = number % second_reader_every == 0
            outcomes[examine(frame, dimension, use_second_reader)] += 1
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
    options.add_argument(
        "--second-reader-every",
        type=int,
        default=10,
        metavar="N",
        help="also use the slow second reader for one frame in N",
    )
    options.add_argument("--out", type=Path, default=Path("fuzz-failure.frame"))
    options.add_argument("--read", type=Path, help="examine the frame in this file")
    options.add_argument(
        "--sanitized",
        action="store_true",
        help="fail unless the C code is built with AddressSanitizer",
    )
    args = options.parse_args()
    if args.sanitized and b"__asan_" not in Path(coder.__file__).read_bytes():
        sys.exit(f"{coder.__file__} is built without AddressSanitizer")
    set_limit()
    torch.set_num_threads(1)
    if args.read:
        frame = args.read.read_bytes()
        print(*examine(frame, raw_header(frame).dimension, use_second_reader=True))
        return
    before, started = peak_megabytes(), time.perf_counter()

    def report(done, outcomes):
        rate = done / (time.perf_counter() - started)
        print(f"{done} frames, {rate:.0f} per second: {summary(outcomes)}", flush=True)

    try:
        outcomes = fuzz(args.seed, args.frames, args.second_reader_every, report)
    except Exception as problem:
        args.out.write_bytes(problem.frame)
        print(f"{type(problem).__name__}: {problem}\nframe written to {args.out}")
        sys.exit(1)
    if args.frames % REPORT_EVERY:
        report(args.frames, outcomes)
    growth = peak_megabytes() - before
    print(f"memory grew by {growth:.0f} MB at most")
    sys.exit(growth > MAX_GROWTH)


if __name__ == "__main__":
    main()
