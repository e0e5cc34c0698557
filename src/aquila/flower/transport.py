"""Frames inside Flower's messages.

Flower sends every object of a message by a request of its own, with about a kilobyte of headers.
So a small frame travels inside the one record there is anyway; a large one is an `Array`, which
Flower cuts into parts of a few megabytes.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from aquila.core.packet import WireError

WORDS = "a"
FRAMES = "f"
PROBLEM = "e"
"""Key of the sentence by which a device says what is wrong."""

SMALL = 2**18
"""Bytes of the largest frame that travels inside the record of words."""

LONGEST_PROBLEM = 400

Value = int | float | str | bytes


@dataclass(frozen=True)
class Overhead:
    """What Flower's records add to the frames of messages, before HTTP adds its headers."""

    bytes: int = 0
    objects: int = 0

    def __add__(self, other: "Overhead") -> "Overhead":
        return Overhead(self.bytes + other.bytes, self.objects + other.objects)


def content_of(words: Mapping[str, Value], frames: Mapping[str, bytes]) -> RecordDict:
    """Return the content of a message that holds a few words and some frames."""
    small = {name: frame for name, frame in frames.items() if len(frame) <= SMALL}
    large = {
        name: Array("uint8", (len(frame),), "aquila.frame", frame)
        for name, frame in frames.items()
        if name not in small
    }
    content = RecordDict({WORDS: ConfigRecord({**words, **small})})
    if large:
        content[FRAMES] = ArrayRecord(large)
    return content


def words_of(content: RecordDict) -> ConfigRecord:
    """Return the words of a message, or raise WireError."""
    words = content.get(WORDS)
    if not isinstance(words, ConfigRecord):
        raise WireError("message without the record of words")
    return words


def word(content: RecordDict, name: str, kind: type[Any]) -> Any:
    """Return one word of a message, which must be of the given type."""
    value = words_of(content).get(name)
    if type(value) is not kind:
        raise WireError(f"message without the {kind.__name__} {name!r}")
    return value


def frame_of(content: RecordDict, name: str, limit: int | None = None) -> bytes:
    """Return a frame of at most so many bytes, or raise WireError."""
    arrays = content.get(FRAMES)
    if isinstance(arrays, ArrayRecord) and name in arrays:
        frame: bytes = arrays[name].data
    else:
        frame = word(content, name, bytes)
    if limit is not None and len(frame) > limit:
        raise WireError(f"frame of {len(frame)} bytes where at most {limit} can be")
    return frame


def longest_frame(dimension: int) -> int:
    """Return how long a frame of so many coordinates can be: a float64 grid and a code for each."""
    return 2**14 + 24 * dimension


def one_line(text: object) -> str:
    """Return a text of somebody else as one line of bounded length, safe to log."""
    line = " ".join(str(text).split())
    clean = "".join(c if c.isprintable() else "?" for c in line)
    return clean if len(clean) <= LONGEST_PROBLEM else clean[: LONGEST_PROBLEM - 3] + "..."


def overhead_of(message: Message) -> Overhead:
    """Return what a message takes beside its frames; an array counts as if it had one part.

    Arrays are measured with next to nothing in them, since Flower would hash every byte of them;
    that is right to a few bytes.
    """
    words, arrays = words_of(message.content), message.content.get(FRAMES)
    frame_bytes = sum(len(value) for value in words.values() if isinstance(value, bytes))
    twin = copy(message)
    if isinstance(arrays, ArrayRecord):
        hollow = ArrayRecord({name: _hollow(array) for name, array in arrays.items()})
        twin.content = RecordDict({WORDS: words, FRAMES: hollow})
        frame_bytes += len(hollow)
    sizes = _sizes(twin)
    return Overhead(sum(sizes) - frame_bytes, len(sizes))


def _hollow(array: Array) -> Array:
    return Array(array.dtype, array.shape, array.stype, b"\0")


def _sizes(part: Any) -> list[int]:
    children = part.children or {}
    return [len(part.deflate()), *(size for c in children.values() for size in _sizes(c))]
