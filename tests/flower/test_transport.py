"""Frames of any size pass through Flower's messages unchanged; invalid ones are refused."""

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from local_grid import LocalGrid

from aquila.core.packet import WireError
from aquila.flower.transport import (
    MAX_INLINE_BYTES,
    config_value,
    content_of,
    frame_of,
    max_frame_bytes,
    one_line,
    overhead_of,
)


@pytest.mark.parametrize("size", [0, 1, MAX_INLINE_BYTES, MAX_INLINE_BYTES + 1, 6_000_000])
def test_frame_arrives_unchanged(size):
    frame = bytes(range(251)) * (size // 251) + bytes(size % 251)
    content = content_of({"seed": 7}, {"f": frame, "c": b"control"})
    assert frame_of(content, "f", size) == frame
    assert frame_of(content, "c") == b"control"
    assert config_value(content, "seed", int) == 7
    assert ("f" in content) == (size > MAX_INLINE_BYTES)


def objects(part) -> list[bytes]:
    below = [deflated for child in (part.children or {}).values() for deflated in objects(child)]
    return [part.deflate(), *below]


def test_small_message_has_three_objects():
    LocalGrid({})
    message = Message(content_of({}, {"f": bytes(1000)}), 1, "train")
    overhead = overhead_of(message)
    assert overhead.objects == 3
    assert overhead.bytes == sum(map(len, objects(message))) - 1000
    assert len(message.content["a"]["f"]) == 1000


def test_large_message_has_six_objects():
    LocalGrid({})
    message = Message(content_of({}, {"f": bytes(10**6)}), 1, "train")
    overhead = overhead_of(message)
    assert overhead.objects == 6
    assert sum(map(len, objects(message))) - 10**6 - overhead.bytes in range(10)
    array = message.content["f"]["f"]
    assert (array.dtype, tuple(array.shape), len(array.data)) == ("uint8", (10**6,), 10**6)
    assert "f" not in message.content["a"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (RecordDict(), "has no config record"),
        (RecordDict({"a": ArrayRecord()}), "has no config record"),
        (RecordDict({"a": ConfigRecord()}), "has no 'f' of type bytes"),
        (RecordDict({"a": ConfigRecord({"f": 3})}), "has no 'f' of type bytes"),
        (content_of({}, {"f": bytes(11)}), "frame of 11 bytes; at most 10 are allowed"),
        (content_of({}, {"f": bytes(MAX_INLINE_BYTES + 1)}), "at most 10 are allowed"),
    ],
)
def test_invalid_content_is_refused(content, expected):
    with pytest.raises(WireError, match=expected):
        frame_of(content, "f", 10)


def test_shape_and_type_of_array_are_ignored():
    array = Array("float64", (10**9, 10**9), "aquila.frame", b"four")
    content = RecordDict({"a": ConfigRecord(), "f": ArrayRecord({"f": array})})
    assert frame_of(content, "f", 4) == b"four"


def test_frame_size_bound_is_large_enough():
    assert max_frame_bytes(0) > 25 + 255 * 42 + 4
    assert max_frame_bytes(1000) - max_frame_bytes(0) >= 1000 * (8 + 8 + 4)


def test_untrusted_text_becomes_one_bounded_line():
    assert one_line("a\n\tb\x1b[31m c") == "a b?[31m c"
    assert len(one_line("x" * 10_000)) == 400
