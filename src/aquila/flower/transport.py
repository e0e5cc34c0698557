"""Frames inside Flower's messages.

Flower sends every object of a message in a separate request, with about a kilobyte of headers.
A small frame therefore travels inside the config record, which every message has. A large frame
is an `Array`, which Flower cuts into parts of a few megabytes.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from aquila.core.packet import WireError

# keys are short, because every message carries them
CONFIG_RECORD = "a"
FRAMES_RECORD = "f"
MODEL_KEY = "m"
CONTROL_KEY = "c"
"""Keys of the two frames of an order."""
REPLY_KEY = "f"
"""Key of the frame of a reply."""
SAMPLES_KEY = "samples-of-run"
"""In a query: asks for the number of samples in the run of this name."""
SIGNATURE_KEY = "s"
"""Key of the signature of a message."""
ERROR_KEY = "e"
"""Key of the error message that a device reports."""
NOTE_PREFIX = "n."
"""Prefix of the keys of a device's notes."""

MAX_INLINE_BYTES = 2**18
"""Size of the largest frame that travels inside the config record."""

MAX_LINE_CHARS = 400
"""Length of the longest line that `one_line` returns."""

Value = int | float | str | bytes


@dataclass(frozen=True)
class Overhead:
    """Bytes and objects that Flower adds to the frames, without HTTP headers."""

    bytes: int = 0
    objects: int = 0

    def __add__(self, other: "Overhead") -> "Overhead":
        return Overhead(self.bytes + other.bytes, self.objects + other.objects)


def content_of(config: Mapping[str, Value], frames: Mapping[str, bytes]) -> RecordDict:
    """Return message content with the given config values and frames."""
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
    """Return the config record of a message. WireError if it has none."""
    config = content.get(CONFIG_RECORD)
    if not isinstance(config, ConfigRecord):
        raise WireError("the message has no config record")
    return config


def config_value(content: RecordDict, name: str, kind: type[Any]) -> Any:
    """Return one config value of a message. WireError if it is missing or of another type."""
    value = config_of(content).get(name)
    if type(value) is not kind:
        raise WireError(f"the message has no {name!r} of type {kind.__name__}")
    return value


def frame_of(content: RecordDict, name: str, max_bytes: int | None = None) -> bytes:
    """Return a frame of a message. WireError if it is missing or longer than `max_bytes`."""
    arrays = content.get(FRAMES_RECORD)
    if isinstance(arrays, ArrayRecord) and name in arrays:
        frame: bytes = arrays[name].data
    else:
        frame = config_value(content, name, bytes)
    if max_bytes is not None and len(frame) > max_bytes:
        raise WireError(f"frame of {len(frame)} bytes; at most {max_bytes} are allowed")
    return frame


def max_frame_bytes(dimension: int) -> int:
    """Return the largest size of a frame: a float64 grid and a code per coordinate."""
    return 2**14 + 24 * dimension


def one_line(text: object) -> str:
    """Return untrusted text as one printable line of bounded length, safe to log."""
    line = " ".join(str(text).split())
    clean = "".join(c if c.isprintable() else "?" for c in line)
    return clean if len(clean) <= MAX_LINE_CHARS else clean[: MAX_LINE_CHARS - 3] + "..."


def overhead_of(message: Message) -> Overhead:
    """Return the size of a message without its frames, exact to a few bytes.

    Arrays are measured without their data, because Flower would hash every byte. Each array counts
    as one part.
    """
    config, arrays = config_of(message.content), message.content.get(FRAMES_RECORD)
    frame_bytes = sum(len(value) for value in config.values() if isinstance(value, bytes))
    measured = copy(message)
    if isinstance(arrays, ArrayRecord):
        without_data = ArrayRecord({name: _without_data(array) for name, array in arrays.items()})
        measured.content = RecordDict({CONFIG_RECORD: config, FRAMES_RECORD: without_data})
        frame_bytes += len(without_data)
    sizes = _sizes(measured)
    return Overhead(sum(sizes) - frame_bytes, len(sizes))


def _without_data(array: Array) -> Array:
    return Array(array.dtype, array.shape, array.stype, b"\0")


def _sizes(part: Any) -> list[int]:
    children = part.children or {}
    return [len(part.deflate()), *(size for c in children.values() for size in _sizes(c))]
