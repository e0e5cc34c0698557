"""An archive without files, for tests that restart sessions thousands of times."""

from aquila.core.envelope import round_of
from aquila.core.fleet import DeviceId


class MemoryArchive:
    """An archive in memory, which ends with the process."""

    def __init__(self) -> None:
        self._frames: dict[DeviceId, list[bytes]] = {}

    def append(self, device: DeviceId, frame: bytes) -> None:
        """Store a reply."""
        self._frames.setdefault(device, []).append(bytes(frame))

    def replies(self, device: DeviceId) -> list[bytes]:
        """Return all stored replies of a device."""
        return list(self._frames.get(device, ()))

    def rewind(self, round_number: int) -> None:
        """Drop the replies to this round and to all later rounds."""
        for device, frames in self._frames.items():
            self._frames[device] = [frame for frame in frames if round_of(frame) < round_number]
