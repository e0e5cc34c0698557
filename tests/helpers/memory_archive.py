"""An archive without files, for tests that restart sessions thousands of times."""

from collections.abc import Collection, Iterator

from aquila.core.fleet import DeviceId
from aquila.runtime.reply_archive import Part


class MemoryArchive:
    """An archive in memory, which ends with the process."""

    def __init__(self) -> None:
        self.parts: dict[Part, list[bytes]] = {}

    def begin(self, device: DeviceId, part: int, entry: bytes) -> None:
        """Store a part with its first entry."""
        self.parts[device, part] = [bytes(entry)]

    def append(self, device: DeviceId, part: int, entry: bytes) -> int:
        """Store an entry; return the bytes of the part."""
        entries = self.parts.get((device, part))
        if entries is None:
            raise FileNotFoundError
        entries.append(bytes(entry))
        return sum(map(len, entries))

    def sync(self) -> None:
        """Do nothing: entries in memory need no disk."""

    def entries(self, device: DeviceId, part: int) -> Iterator[bytes]:
        """Yield the entries of a part."""
        yield from self.parts.get((device, part), ())

    def has_entries(self, device: DeviceId, part: int, entries: int) -> bool:
        """Return whether a part has at least this many entries."""
        return len(self.parts.get((device, part), ())) >= entries

    def truncate(self, device: DeviceId, part: int, entries: int) -> None:
        """Drop all but the first entries of a part."""
        del self.parts[device, part][entries:]

    def keep_only(self, parts: Collection[Part]) -> None:
        """Delete all other parts."""
        self.parts = {part: entries for part, entries in self.parts.items() if part in parts}

    def copy(self) -> "MemoryArchive":
        """Return an independent archive."""
        other = MemoryArchive()
        other.parts = {part: list(entries) for part, entries in self.parts.items()}
        return other
