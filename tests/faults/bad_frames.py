"""Bad frames that a faulty or malicious device can send: invalid, forged or replayed."""

from collections.abc import Callable
from pathlib import Path

from flwr.app import Message

from aquila.core.envelope import parse
from aquila.flower.transport import ERROR_KEY, config_of, content_of, frame_of
from helpers.frame_builder import CODED, DENSE, RELAYED, RawFrame, floats, relayed_round


def _forge(frame: bytes, **fields: object) -> bytes:
    """Return a forged frame with a valid checksum that answers the right order."""
    original = parse(frame)
    return RawFrame(**{"round": original.round, "refers_to": original.refers_to, **fields}).bytes()


def _relayed(frame: bytes) -> bytes:
    return _forge(frame, kind=RELAYED, dimension=30, body=relayed_round(1, 1.0, (1.0, frame)))


def _dense(frame: bytes, values: list[float]) -> bytes:
    return _forge(frame, kind=DENSE, dimension=len(values), body=floats(*values))


BAD_FRAMES: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda frame: b"garbage" * 10,
    "cut": lambda frame: frame[:20],
    "short": lambda frame: frame[:3],
    "dimension": lambda frame: _dense(frame, [1.0, 2.0, 3.0]),
    "huge": lambda frame: _forge(frame, kind=CODED, bits=8, dimension=2**32 - 1, body=bytes(64)),
    "infinite": lambda frame: _dense(frame, [float("inf")] * 30),
    "relayed": _relayed,
    "other order": lambda frame: _forge(frame, refers_to=12345),
}
EXPECTED_MESSAGES = {
    "garbage": "not a frame",
    "cut": "checksum does not match",
    "short": "cut short",
    "dimension": "3 coordinates",
    "huge": "4294967295 coordinates",
    "infinite": "infinite",
    "relayed": "must not relay other replies",
    "other order": "answers another order than that of round",
    "replay": "reply to round 0 arrived in round",
}
"""The server's message for each bad frame."""


def with_bad_frame(reply: Message, device: int, control_folder: Path) -> Message:
    """Replace the frame of a reply by the kind that the next line of `bad-frame-N` names."""
    if ERROR_KEY in config_of(reply.content):
        return reply
    frame, first = frame_of(reply.content, "f"), control_folder / f"first-{device}"
    if not first.exists():
        first.write_bytes(frame)
    lines = control_folder / f"bad-frame-{device}"
    names = lines.read_text().splitlines() if lines.exists() else []
    if names:
        lines.write_text("\n".join(names[1:]))
        raw_frame = first.read_bytes() if names[0] == "replay" else BAD_FRAMES[names[0]](frame)
        reply.content = content_of({}, {"f": raw_frame})
    return reply
