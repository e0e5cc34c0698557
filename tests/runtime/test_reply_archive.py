"""Archives store entries in order, survive an incomplete end, and can be truncated."""

import os
import stat

import pytest

from aquila.runtime.reply_archive import FolderArchive, Position
from helpers.memory_archive import MemoryArchive

ENTRIES = [b"", b"first frame", b"x" * 300, b"last"]


@pytest.fixture(params=["memory", "folder"])
def archive(request, tmp_path):
    return MemoryArchive() if request.param == "memory" else FolderArchive(tmp_path / "archive")


def fill(archive, device=0, part=0):
    archive.begin(device, part, ENTRIES[0])
    for entry in ENTRIES[1:]:
        archive.append(device, part, entry)


def entries(archive, device=0, part=0):
    return list(archive.entries(device, part))


def test_entries_are_returned_per_part_in_order(archive):
    fill(archive, 0)
    fill(archive, 17, 2)
    archive.append(17, 2, b"more")
    assert entries(archive) == ENTRIES
    assert entries(archive, 17, 2) == [*ENTRIES, b"more"]
    assert entries(archive, 1) == entries(archive, 17, 1) == []


@pytest.mark.parametrize("kept", range(5))
def test_truncated_part_drops_later_entries_and_continues(archive, kept):
    fill(archive)
    assert archive.has_entries(0, 0, min(kept, 4))
    assert not archive.has_entries(0, 0, 5)
    assert not archive.has_entries(0, 1, 1)
    archive.truncate(0, 0, kept)
    assert entries(archive) == ENTRIES[:kept]
    archive.append(0, 0, b"new")
    assert entries(archive) == [*ENTRIES[:kept], b"new"]


def test_part_that_begins_again_is_replaced(archive):
    fill(archive)
    archive.begin(0, 0, b"sum")
    assert entries(archive) == [b"sum"]


def test_missing_part_is_not_created_by_an_append(archive):
    with pytest.raises(FileNotFoundError):
        archive.append(0, 0, b"frame")
    assert entries(archive) == []


def test_other_parts_are_deleted(archive):
    for device in (1, 11):
        for part in range(3):
            fill(archive, device, part)
    archive.keep_only({(1, 2), (11, 0)})
    kept = [(d, p) for d in (1, 11) for p in range(3) if entries(archive, d, p)]
    assert kept == [(1, 2), (11, 0)]


def test_append_returns_the_size_of_the_file(tmp_path):
    archive = FolderArchive(tmp_path)
    archive.begin(0, 0, b"memory")
    assert archive.append(0, 0, b"frame") == (tmp_path / "0-0.frames").stat().st_size == 8 * 2 + 11


def test_folder_can_be_reopened_and_only_its_owner_can_read_it(tmp_path):
    folder = tmp_path / "parent" / "archive"
    assert FolderArchive(folder).is_empty
    fill(FolderArchive(folder))
    assert not FolderArchive(folder).is_empty
    assert entries(FolderArchive(folder)) == ENTRIES
    if os.name == "posix":
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("torn", [b"\x00", b"\x05" * 7, b"\x05" + bytes(7) + b"abcd", b"\xff" * 64])
def test_incomplete_entry_after_a_crash_is_skipped_and_removed(tmp_path, torn):
    archive = FolderArchive(tmp_path)
    fill(archive)
    with (tmp_path / "0-0.frames").open("ab") as file:
        file.write(torn)
    assert entries(archive) == ENTRIES
    archive.truncate(0, 0, 4)
    archive.append(0, 0, b"new")
    assert entries(archive) == [*ENTRIES, b"new"]


def test_checksum_of_a_position_depends_on_every_entry_and_their_order():
    def position(*entries, part=0):
        reached = Position(part)
        for entry in entries:
            reached = reached.after(entry)
        return reached

    lists = [(), (b"",), (b"", b""), (b"a", b"b"), (b"b", b"a"), (b"ab",), (b"", b"ab")]
    assert len({position(*entries).checksum for entries in lists}) == len(lists)
    assert position(b"a", b"b") == (0, 2, position(b"a", b"b", part=3).checksum)
    assert all(0 <= position(*entries).checksum < 2**63 for entries in lists)
