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
        self.is_on, self.uploads = is_on, RoundUploads()
        self._weights, self._read, self._has_warned = fleet.weights, read, False

    @property
    def relay(self) -> Relay | None:
        """What passes the uploads on, None if the run does not relay any."""
        if not self.is_on:
            return None
        return Relay(self.uploads, self._read_upload, self._report_misfit)

    def frame_of(self, read_frame: ReadFrame) -> ReadFrame:
        """Return the frame of a reply until the round is closed, an empty one without need."""
        return read_frame if self.is_on else in_memory(b"")

    def keep(self, applied: Mapping[DeviceId, ReceivedReply], model_bytes: int) -> None:
        """Keep the uploads of a round, if they take fewer bytes than the model."""
        if self.is_on:
            sent = {d: reply for d, reply in applied.items() if reply.reply.vector is not None}
            replies = ((self._weights[d], reply.read_frame) for d, reply in sent.items())
            self.uploads = RoundUploads.within(replies, model_bytes)

    def _read_upload(self, frame: bytes) -> Vector:
        return decode_upload(self._read(frame))

    def _report_misfit(self, round_number: int) -> None:
        """Warn once that the option has no effect."""
        if not self._has_warned:
            _LOG.warning(
                "relay_uploads has no effect in round %d: the uploads do not tell how the model "
                "has changed, because of a memory of the method, a server momentum or clipping",
                round_number,
            )
        self._has_warned = True
