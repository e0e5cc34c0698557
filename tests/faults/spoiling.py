"""Ways in which a device can lie: frames that are none, that claim too much, or are old."""

from collections.abc import Callable
from pathlib import Path

from flwr.app import Message

from aquila.core.envelope import parse
from aquila.flower.transport import PROBLEM, content_of, frame_of, words_of
from hostile.forge import CODED, DENSE, Forged, floats


def _lie(frame: bytes, **claims: object) -> bytes:
    """Return a frame with a sound checksum that answers the right order and lies elsewhere."""
    honest = parse(frame)
    return Forged(**{"round": honest.round, "answers": honest.answers, **claims}).bytes()


def _dense(frame: bytes, values: list[float]) -> bytes:
    return _lie(frame, kind=DENSE, bits=32, dimension=len(values), body=floats(*values))


SPOILS: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda frame: b"garbage" * 10,
    "cut": lambda frame: frame[:20],
    "dimension": lambda frame: _dense(frame, [1.0, 2.0, 3.0]),
    "huge": lambda frame: _lie(frame, kind=CODED, bits=8, dimension=2**32 - 1, body=bytes(64)),
    "infinite": lambda frame: _dense(frame, [float("inf")] * 30),
    "other order": lambda frame: _lie(frame, answers=12345),
}
SAID = {
    "garbage": "not a frame",
    "cut": "cut short",
    "dimension": "3 coordinates",
    "huge": "4294967295 coordinates",
    "infinite": "infinite",
    "other order": "reply to another order than that of round",
    "replay": "reply to round 0 in round",
}
"""What the server says of each."""


def spoiled(reply: Message, device: int, stage: Path) -> Message:
    """Replace the frame of a reply in the way that the next line of the file `spoil-0` names."""
    if PROBLEM in words_of(reply.content):
        return reply
    frame, first = frame_of(reply.content, "f"), stage / f"first-{device}"
    if not first.exists():
        first.write_bytes(frame)
    lines = stage / f"spoil-{device}"
    names = lines.read_text().splitlines() if lines.exists() else []
    if names:
        lines.write_text("\n".join(names[1:]))
        lie = first.read_bytes() if names[0] == "replay" else SPOILS[names[0]](frame)
        reply.content = content_of({}, {"f": lie})
    return reply
