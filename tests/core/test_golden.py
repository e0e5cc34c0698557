"""Golden frames: committed bytes that must always be read and written the same."""

import math
import re
import runpy
from pathlib import Path

import pytest
import torch

from aquila.core.packet import Codes, RelayedUploads, SparseCodes
from aquila.core.wire import pack, unpack
from aquila.runtime.reference import with_checksum, with_rounds
from helpers import frame_reader

GOLDEN = Path(__file__).parents[1] / "golden"
DOCS = Path(__file__).parents[2] / "docs"
MAKE = runpy.run_path(str(GOLDEN / "make.py"))
FRAMES = MAKE["descriptions"]()
CODED = [name for name in FRAMES if name.startswith("coded")]
SEGMENTS = {
    "coded_by_hand": [(frame_reader.EXCEPTIONS, 200)],
    "coded_one_value": [(frame_reader.EXCEPTIONS, 1000)],
    "coded_exceptions_wide": [(frame_reader.EXCEPTIONS, 2432)],
    "coded_direct": [(frame_reader.DIRECT, 240)],
    "coded_direct_four_states": [(frame_reader.DIRECT, 1123)],
    "coded_in_buckets": [(frame_reader.DIRECT, 400)],
    "coded_zigzag": [(frame_reader.ZIGZAG, 5120)],
    "coded_zigzag_wide": [(frame_reader.ZIGZAG, 206)],
    "coded_zigzag_four_states": [(frame_reader.ZIGZAG, 542)],
    "coded_signed_exceptions": [(frame_reader.SIGNED_EXCEPTIONS, 1508)],
    "coded_signed_exceptions_wide": [(frame_reader.SIGNED_EXCEPTIONS, 39918)],
    "coded_layers": [
        (frame_reader.PACKED, 8192),
        (frame_reader.DIRECT, 8192),
        (frame_reader.EXCEPTIONS, 12002),
    ],
}

WORKED_EXAMPLES = {
    "wire-format-examples.md": ["codes_6_bits", "coded_by_hand", "dithered_by_hand"],
    "wire-format-relayed.md": ["relayed"],
}


@pytest.fixture(params=FRAMES)
def name(request):
    return request.param


def frame_of(name):
    return (GOLDEN / f"{name}.frame").read_bytes()


def assert_same_bits(tensor, numbers, dtype):
    expected = torch.tensor(numbers, dtype=dtype)
    assert tensor.dtype == dtype
    assert tensor.numpy().tobytes() == expected.numpy().tobytes()


def described_rounds(vector):
    """Return the rounds of a relayed frame: base, factor, weights and frames of each."""
    return [
        (
            one["base"], one["factor"], [reply["weight"] for reply in one["replies"]],
            [frame_of(reply["frame"]) for reply in one["replies"]],
        )
        for one in vector.get("rounds", [])
    ]  # fmt: skip


def test_every_golden_frame_is_described():
    assert {path.stem for path in GOLDEN.glob("*.frame")} == set(FRAMES)


def test_golden_frame_is_read_as_described(name):
    described, packet = FRAMES[name], unpack(frame_of(name))
    assert (packet.round, packet.ack) == (described["round"], described["ack"])
    for field in ("refused", "refers_to", "fresh"):
        assert getattr(packet, field) == described[field], field
    assert list(packet.scalars.items()) == list(described["scalars"].items())
    vector, expected = packet.vector, described["vector"]
    if expected is None:
        assert vector is None
        return
    dtype = getattr(torch, expected["float"])
    if isinstance(vector, RelayedUploads):
        assert (vector.dimension, vector.dtype) == (expected["dimension"], dtype)
        rounds = [(r.base, r.factor, [*r.weights], [*r.frames]) for r in vector.rounds]
        assert rounds == described_rounds(expected)
        return
    if isinstance(vector, Codes | SparseCodes):
        for field in ("bits", "bucket", "dither_seed"):
            assert getattr(vector, field) == expected[field], field
        assert vector.codes.tolist() == expected["codes"]
        assert_same_bits(vector.low, expected["low"], dtype)
        assert_same_bits(vector.step, expected["step"], dtype)
    decoded = expected["decoded"] if "decoded" in expected else expected["values"]
    assert_same_bits(vector.decode(), decoded, dtype)


def test_described_packet_is_written_as_golden_frame(name):
    frame = frame_of(name)
    assert len(frame) == FRAMES[name]["bytes"]
    assert pack(MAKE["packet_of"](FRAMES[name])) == frame
    assert pack(unpack(frame)) == frame


def test_second_reader_reads_golden_frame_as_described(name):
    described, got = FRAMES[name], frame_reader.read(frame_of(name))
    for field in ("round", "ack", "refers_to", "refused", "fresh", "scalars"):
        assert getattr(got, field) == described[field], field
    vector = described["vector"] or {}
    assert got.double is (vector.get("float") == "float64")
    for field in vector.keys() & {"bits", "bucket", "codes", "dimension", "dither_seed"}:
        assert getattr(got, field) == vector[field], field
    rounds = [(r.base, r.factor, r.weights, r.frames) for r in got.rounds]
    assert rounds == described_rounds(vector)
    dtype = torch.float64 if got.double else torch.float32
    decoded = vector.get("decoded", vector.get("values", []))
    for floats, expected in (
        (got.values, decoded),
        (got.low, vector.get("low", [])),
        (got.step, vector.get("step", [])),
    ):
        assert_same_bits(torch.tensor(floats, dtype=dtype), expected, dtype)


@pytest.mark.parametrize("name", CODED)
def test_coded_frame_has_its_segments(name):
    assert frame_reader.read(frame_of(name)).segments == SEGMENTS[name]


def test_every_mode_has_a_golden_frame():
    assert {mode for segments in SEGMENTS.values() for mode, _ in segments} == set(range(5))


@pytest.mark.parametrize("name", ["dithered_by_hand", "dithered", "dithered_rare"])
def test_dithered_frame_starts_with_step_and_seed(name):
    frame, got = frame_of(name), frame_reader.read(frame_of(name))
    assert got.kind == frame_reader.DITHERED
    seed_at = got.header_bytes + (8 if got.double else 4)
    assert frame[seed_at : seed_at + 4] == got.dither_seed.to_bytes(4, "little")
    sent = len(got.codes) - got.codes.count(2 ** (got.bits - 1) - 1)
    assert frame[seed_at + 4] == int(8 * math.log2(len(got.codes) / sent))


@pytest.mark.parametrize("held", [0, 1])
def test_relayed_rounds_give_the_described_models(held):
    described, relayed = FRAMES["relayed"]["vector"], unpack(frame_of("relayed")).vector
    models = [torch.tensor(values) for values in described["models"]]
    bases = [with_checksum(theta).checksum for theta in models]
    assert [one.base for one in relayed.rounds] == bases[:-1]
    changed = with_rounds(
        with_checksum(models[held]), relayed, lambda frame: unpack(frame).vector.decode()
    )
    assert_same_bits(changed.theta, described["models"][-1], torch.float32)


def blocks(page, language):
    """Return the fenced blocks of this language on a page of the documentation."""
    text = (DOCS / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_documented_reader_reads_every_golden_frame(name):
    documented = {}
    for page in ("wire-format-reader.md", "wire-format-reader-dithered.md"):
        (text,) = blocks(page, "python")
        exec(text, documented)
    described, got = FRAMES[name], documented["read"](frame_of(name))
    for field in ("round", "ack", "refers_to", "refused", "fresh", "scalars"):
        assert got[field] == described[field]
    expected = described["vector"] or {}
    dtype = getattr(torch, expected.get("float", "float32"))
    decoded = torch.tensor(expected.get("decoded", expected.get("values", [])), dtype=dtype)
    assert torch.tensor(got["values"], dtype=dtype).tolist() == decoded.tolist()
    assert got["rounds"] == [
        (base, factor, list(zip(weights, frames, strict=True)))
        for base, factor, weights, frames in described_rounds(expected)
    ]


@pytest.mark.parametrize("page", WORKED_EXAMPLES)
def test_documented_examples_are_golden_frames(page):
    for text, name in zip(blocks(page, "text"), WORKED_EXAMPLES[page], strict=True):
        hexadecimal = "".join(line.split("   ")[0] for line in text.splitlines())
        assert bytes.fromhex(hexadecimal) == frame_of(name)
