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

CONFIG_RECORD = "a"
FRAMES_RECORD = "f"
PROBLEM = "e"
"""Key of the sentence by which a device says what is wrong."""

MAX_INLINE_BYTES = 2**18
"""Bytes of the largest frame that travels inside the config record."""

MAX_PROBLEM_CHARS = 400

Value = int | float | str | bytes


@dataclass(frozen=True)
class Overhead:
    """What Flower's records add to the frames of messages, before HTTP adds its headers."""

    bytes: int = 0
    objects: int = 0

    def __add__(self, other: "Overhead") -> "Overhead":
        return Overhead(self.bytes + other.bytes, self.objects + other.objects)


def content_of(config: Mapping[str, Value], frames: Mapping[str, bytes]) -> RecordDict:
    """Return the content of a message that holds a few values and some frames."""
    small = {name: frame for name, frame in frames.items() if len(frame) <= MAX_INLINE_BYTES}
    large = {
        name: Array("uint8", (len(frame),), "aquila.frame", frame)
        for name, frame in frames.items()
        if name not in small
    }
    content = RecordDict({CONFIG_RECORD: ConfigRecord({**config, **small})})
    if large:
        content[FRAMES_RECORD] = ArrayRecord(large)
    return content


def config_of(content: RecordDict) -> ConfigRecord:
    """Return the config record of a message, or raise WireError."""
    config = content.get(CONFIG_RECORD)
    if not isinstance(config, ConfigRecord):
        raise WireError("message without the config record")
    return config


def config_value(content: RecordDict, name: str, kind: type[Any]) -> Any:
    """Return one config value of a message, which must be of the given type."""
    value = config_of(content).get(name)
    if type(value) is not kind:
        raise WireError(f"message without the {kind.__name__} {name!r}")
    return value


def frame_of(content: RecordDict, name: str, max_bytes: int | None = None) -> bytes:
    """Return a frame of at most so many bytes, or raise WireError."""
    arrays = content.get(FRAMES_RECORD)
    if isinstance(arrays, ArrayRecord) and name in arrays:
        frame: bytes = arrays[name].data
    else:
        frame = config_value(content, name, bytes)
    if max_bytes is not None and len(frame) > max_bytes:
        raise WireError(f"frame of {len(frame)} bytes where at most {max_bytes} can be")
    return frame


def max_frame_bytes(dimension: int) -> int:
    """Return how long a frame of so many coordinates can be: a float64 grid and a code for each."""
    return 2**14 + 24 * dimension


def one_line(text: object) -> str:
    """Return a text of somebody else as one line of bounded length, safe to log."""
    line = " ".join(str(text).split())
    clean = "".join(c if c.isprintable() else "?" for c in line)
    return clean if len(clean) <= MAX_PROBLEM_CHARS else clean[: MAX_PROBLEM_CHARS - 3] + "..."


def overhead_of(message: Message) -> Overhead:
    """Return what a message takes beside its frames; an array counts as if it had one part.

    Arrays are measured with next to nothing in them, since Flower would hash every byte of them;
    that is right to a few bytes.
    """
    config, arrays = config_of(message.content), message.content.get(FRAMES_RECORD)
    frame_bytes = sum(len(value) for value in config.values() if isinstance(value, bytes))
    twin = copy(message)
    if isinstance(arrays, ArrayRecord):
        without_data = ArrayRecord({name: _without_data(array) for name, array in arrays.items()})
        twin.content = RecordDict({CONFIG_RECORD: config, FRAMES_RECORD: without_data})
        frame_bytes += len(without_data)
    sizes = _sizes(twin)
    return Overhead(sum(sizes) - frame_bytes, len(sizes))


def _without_data(array: Array) -> Array:
    return Array(array.dtype, array.shape, array.stype, b"\0")


def _sizes(part: Any) -> list[int]:
    children = part.children or {}
    return [len(part.deflate()), *(size for c in children.values() for size in _sizes(c))]
