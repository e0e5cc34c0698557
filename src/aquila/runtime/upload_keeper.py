"""Keeps the uploads that a round applied, so that the next one can relay them."""

import logging
from collections.abc import Callable, Mapping

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import decode_upload
from aquila.core.packet import Packet
from aquila.core.vector import Vector
from aquila.runtime.frame_spool import ReadFrame, in_memory
from aquila.runtime.relay import Relay, RoundUploads
from aquila.runtime.server_state import ReceivedReply

_LOG = logging.getLogger("aquila")


class UploadKeeper:
    """The uploads of the last round, on the server.

    Args:
        is_on: Whether the run relays uploads. If not, nothing is kept.
        fleet: The fleet of the run.
        read: Reads the frame of a reply of device 0.
    """

    def __init__(self, is_on: bool, fleet: Fleet, read: Callable[[bytes], Packet]) -> None:
        if is_on and fleet.slices != (None,):
            raise ValueError(
                "relay_uploads needs devices that all hold the whole model; set one width"
            )
        self.is_on = is_on
        self.uploads: RoundUploads | None = None
        self._weights, self._read, self._has_warned = fleet.weights, read, False

    @property
    def relay(self) -> Relay | None:
        """What passes the uploads on, None without uploads that are small enough."""
        if self.uploads is None:
            return None
        return Relay(self.uploads, self._read_upload, self._report_unused)

    def frame_of(self, read_frame: ReadFrame, is_needed: bool) -> ReadFrame:
        """Return the frame of a reply until the round is closed, an empty one without need."""
        return read_frame if self.is_on or is_needed else in_memory(b"")

    def keep(self, applied: Mapping[DeviceId, ReceivedReply], model_bytes: int) -> None:
        """Keep the uploads of a round, if they take fewer bytes than the model."""
        if self.is_on:
            sent = {d: reply for d, reply in applied.items() if reply.reply.vector is not None}
            replies = ((self._weights[d], reply.read_frame) for d, reply in sent.items())
            self.uploads = RoundUploads.within(replies, model_bytes)
            if self.uploads is None:
                self._warn("the uploads of a round take as many bytes as the model")

    def _read_upload(self, frame: bytes) -> Vector:
        return decode_upload(self._read(frame))

    def _report_unused(self, round_number: int) -> None:
        self._warn(
            f"in round {round_number} the model does not follow from the mean of the uploads, as "
            "with a memory of the method, a server momentum or clipping"
        )

    def _warn(self, reason: str) -> None:
        """Say once in a run that whole models are sent."""
        if not self._has_warned:
            _LOG.warning("relay_uploads: some rounds send whole models, because %s", reason)
        self._has_warned = True
