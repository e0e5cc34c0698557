"""Bounds the memory of the uploads of an open round, however many devices reply."""

from collections.abc import Callable
from dataclasses import replace

from aquila.core.packet import Packet, SparseCodes, StoredUpload, Upload, WireError
from aquila.core.peaks import PeakUpload
from aquila.runtime.frame_spool import FrameSpool, ReadFrame, in_memory

MAX_DECODED_BYTES = 2**30
"""Bytes of sparse uploads that a round keeps decoded: about 6,000 of 20,000 coordinates."""


class WaitingUploads:
    """Keeps uploads until the round is closed: decoded, or as frames that are then read again.

    Sparse uploads stay decoded up to a limit. Their frames are ten to twenty times smaller. Other
    uploads stay decoded only without a spool.

    Args:
        spool: Keeps the frames. None: they stay in memory.
        limit: Bytes of sparse uploads that stay decoded.
    """

    def __init__(self, spool: FrameSpool | None = None, limit: int = MAX_DECODED_BYTES) -> None:
        self.limit, self.bytes = limit, 0
        self._spool = spool

    def keep(
        self, reply: Packet, frame: bytes, read: Callable[[bytes], Packet]
    ) -> tuple[Packet, ReadFrame]:
        """Return the reply as it is kept, and the function that returns its frame.

        `read` returns the reply of the frame.
        """
        read_frame = in_memory(frame) if self._spool is None else self._spool.add(frame)
        vector = reply.vector
        if vector is None or self._stays_decoded(vector):
            return reply, read_frame

        def load() -> Upload:
            upload = read(read_frame()).vector
            if upload is None:
                raise WireError("a stored reply has no upload")
            return upload

        basis = getattr(vector, "basis_number", 0)
        stored = StoredUpload(vector.dimension, vector.bits, load, basis)
        return replace(reply, vector=stored), read_frame

    def _stays_decoded(self, vector: Upload) -> bool:
        if not isinstance(vector, SparseCodes | PeakUpload):
            return self._spool is None
        if self.bytes + vector.nbytes > self.limit:
            return False
        self.bytes += vector.nbytes
        return True
