"""Bounds the memory of the decoded uploads of a round, however many devices reply."""

from collections.abc import Callable
from dataclasses import replace

from aquila.core.packet import Packet, SparseCodes, StoredCodes, Upload, WireError

MAX_DECODED_BYTES = 2**30
"""Bytes of sparse uploads that a round keeps decoded: about 6,000 of 20,000 coordinates."""


class DecodedUploads:
    """Keeps sparse uploads decoded up to a limit, and only the frames of those after it.

    Frames are ten to twenty times smaller. They are read a second time when the round is closed.
    """

    def __init__(self, limit: int = MAX_DECODED_BYTES) -> None:
        self.limit, self.bytes = limit, 0

    def keep(self, reply: Packet, read: Callable[[], Packet]) -> Packet:
        """Return a reply as it is kept until the round is closed; `read` reads its frame again."""
        vector = reply.vector
        if not isinstance(vector, SparseCodes):
            return reply
        if self.bytes + vector.nbytes <= self.limit:
            self.bytes += vector.nbytes
            return reply

        def load() -> Upload:
            upload = read().vector
            if upload is None:
                raise WireError("a stored reply has no upload")
            return upload

        return replace(reply, vector=StoredCodes(vector.dimension, vector.bits, load))
