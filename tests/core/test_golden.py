"""Frames written once and committed: they must read, and be written, the same for ever."""

import re
import runpy
from pathlib import Path

import pytest
import torch

from aquila.core.packet import Codes
from aquila.core.wire import pack, unpack

GOLDEN = Path(__file__).parents[1] / "golden"
DOCS = Path(__file__).parents[2] / "docs" / "wire-format.md"
MAKE = runpy.run_path(str(GOLDEN / "make.py"))
FRAMES = MAKE["descriptions"]()


@pytest.fixture(params=FRAMES)
def name(request):
    return request.param


def frame_of(name):
    return (GOLDEN / f"{name}.frame").read_bytes()


def assert_same_bits(tensor, numbers, dtype):
    expected = torch.tensor(numbers, dtype=dtype)
    assert tensor.dtype == dtype
    assert tensor.numpy().tobytes() == expected.numpy().tobytes()


def test_every_frame_is_described():
    assert {path.stem for path in GOLDEN.glob("*.frame")} == set(FRAMES)


def test_a_frame_reads_as_described(name):
    described, packet = FRAMES[name], unpack(frame_of(name))
    assert (packet.round, packet.ack) == (described["round"], described["ack"])
    assert packet.refused is described["refused"]
    assert list(packet.scalars.items()) == list(described["scalars"].items())
    vector, expected = packet.vector, described["vector"]
    if expected is None:
        assert vector is None
        return
    dtype = getattr(torch, expected["float"])
    if isinstance(vector, Codes):
        assert (vector.bits, vector.bucket) == (expected["bits"], expected["bucket"])
        assert vector.codes.tolist() == expected["codes"]
        assert_same_bits(vector.low, expected["low"], dtype)
        assert_same_bits(vector.step, expected["step"], dtype)
    decoded = expected["decoded"] if isinstance(vector, Codes) else expected["values"]
    assert_same_bits(vector.decode(), decoded, dtype)


def test_what_is_described_is_written_as_that_frame(name):
    frame = frame_of(name)
    assert len(frame) == FRAMES[name]["bytes"]
    assert pack(MAKE["packet_of"](FRAMES[name])) == frame
    assert pack(unpack(frame)) == frame


def block(language):
    """Return the one fenced block of this language in the format's documentation."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    return text


def test_the_reader_in_the_documentation_reads_every_frame(name):
    reader = {}
    exec(block("python"), reader)
    described, got = FRAMES[name], reader["read"](frame_of(name))
    for field in ("round", "ack", "refused", "scalars"):
        assert got[field] == described[field]
    expected = described["vector"] or {}
    dtype = getattr(torch, expected.get("float", "float32"))
    decoded = torch.tensor(expected.get("decoded", expected.get("values", [])), dtype=dtype)
    assert torch.tensor(got["values"], dtype=dtype).tolist() == decoded.tolist()


def test_the_worked_example_in_the_documentation_is_a_golden_frame():
    hexadecimal = "".join(line.split("   ")[0] for line in block("text").splitlines())
    assert bytes.fromhex(hexadecimal) == frame_of("codes_6_bits")
