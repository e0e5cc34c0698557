"""What a power cut may leave of a folder, at every call that changes files in it.

The recorder watches the calls of a process. After each call it derives what a disk may hold if the
power fails now: names and contents that were not synced may be there, or not.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock

import pytest

WATCHED = ("open", "replace", "rename", "unlink", "remove", "link", "mkdir")
IGNORED = {"lock"}
"""Lock files, which no process reads after a power cut."""


@dataclass(frozen=True)
class Image:
    """A folder after a power cut: contents by relative path, None for a folder.

    `progress` is how far the process had promised that its files are saved.
    """

    content: tuple[tuple[str, bytes | None], ...]
    progress: int

    def write(self, folder: Path) -> None:
        """Write the image to a new folder."""
        folder.mkdir()
        for name, content in self.content:
            if content is None:
                (folder / name).mkdir()
            else:
                (folder / name).write_bytes(content)


class Disk:
    """Names and contents below a folder that were synced, and all images that were possible."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.images: dict[Image, str] = {}
        self.progress = 0
        self._synced_contents: dict[int, bytes] = {}
        self._synced_names: dict[str, dict[str, int]] = {}
        self._folders: set[int] = set()
        self._inodes: dict[int, int] = {}
        self._lock = RLock()

    def fsync(self, descriptor: int) -> None:
        """Note that a file or a folder was synced."""
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path != self.root and self.root not in path.parents:
            return
        with self._lock:
            if path.is_dir():
                self._synced_names[self._name(path)] = self._names_in(path)
            elif path.exists():
                self._synced_contents[path.stat().st_ino] = path.read_bytes()
            self.note(f"fsync {path.name}")

    def note(self, call: str) -> None:
        """Add the images that are possible after a call."""
        with self._lock:
            self._add_images(call)

    def _add_images(self, call: str) -> None:
        names = {".": self._names_in(self.root)}
        for folder in [path for path in sorted(self.root.rglob("*")) if path.is_dir()]:
            names[self._name(folder)] = self._names_in(folder)
        contents = self._contents()
        torn = {
            inode: content[: (len(self._synced_contents.get(inode, b"")) + len(content)) // 2]
            for inode, content in contents.items()
        }
        for known, contents_ in (
            (self._synced_names, self._synced_contents),
            (names, self._synced_contents),
            (names, torn),
            (names, contents),
        ):
            image = Image(tuple(self._tree(known, contents_, ".")), self.progress)
            self.images.setdefault(image, call)

    def _tree(
        self, names: dict[str, dict[str, int]], contents: dict[int, bytes], folder: str
    ) -> Iterator[tuple[str, bytes | None]]:
        for name, inode in sorted(names.get(folder, {}).items()):
            path = name if folder == "." else f"{folder}/{name}"
            if inode in self._folders:
                yield path, None
                yield from self._tree(names, contents, path)
            else:
                yield path, contents.get(inode, b"")

    def _names_in(self, folder: Path) -> dict[str, int]:
        names = {}
        for path in folder.iterdir():
            if path.name in IGNORED:
                continue
            inode = path.stat().st_ino
            names[path.name] = inode
            if path.is_dir():
                self._folders.add(inode)
            if inode not in self._inodes:  # an open file keeps its number for itself
                self._inodes[inode] = REAL["open"](path, os.O_RDONLY)
        return names

    def _contents(self) -> dict[int, bytes]:
        return {
            path.stat().st_ino: path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file() and path.name not in IGNORED
        }

    def _name(self, folder: Path) -> str:
        return str(folder.relative_to(self.root))

    def close(self) -> None:
        for descriptor in self._inodes.values():
            os.close(descriptor)


REAL = {name: getattr(os, name) for name in WATCHED}


@contextmanager
def recorded_disk(root: Path) -> Iterator[Disk]:
    """Record the calls that change files below a folder, which exists and is on disk."""
    disk = Disk(root)

    def watched(name):
        def call(path, *arguments, **options):
            result = REAL[name](path, *arguments, **options)
            is_read = name == "open" and not arguments[0] & (os.O_WRONLY | os.O_RDWR)
            if root in Path(path).parents and not is_read:
                disk.note(f"{name} {Path(path).name}")
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", disk.fsync)
        for name in WATCHED:
            patch.setattr(os, name, watched(name))
        try:
            yield disk
        finally:
            disk.close()
