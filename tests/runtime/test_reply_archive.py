"""Archives store replies in order, survive an incomplete end, and can be truncated."""

import os
import stat

import pytest
import torch

from aquila.core.envelope import checksum_of
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.wire import pack
from aquila.runtime.messages import Ack
from aquila.runtime.reply_archive import FolderArchive, reply_history
from helpers.memory_archive import MemoryArchive


def frame(round_number, fresh=False, size=3):
    return pack(Packet(round_number, Dense(torch.full((size,), float(round_number))), fresh=fresh))


@pytest.fixture(params=["memory", "folder"])
def archive(request, tmp_path):
    return MemoryArchive() if request.param == "memory" else FolderArchive(tmp_path / "archive")


def fill(archive, rounds=range(4)):
    for round_number in rounds:
        for device in (0, 7):
            archive.append(device, frame(round_number, size=3 + device))


def test_replies_are_returned_per_device_in_order(archive):
    fill(archive)
    assert archive.replies(0) == [frame(round_number) for round_number in range(4)]
    assert archive.replies(7) == [frame(round_number, size=10) for round_number in range(4)]
    assert archive.replies(1) == []


@pytest.mark.parametrize("round_number", [0, 2, 9])
def test_rewound_archive_drops_later_replies_and_continues(archive, round_number):
    fill(archive)
    archive.rewind(round_number)
    kept = [frame(k) for k in range(min(round_number, 4))]
    assert archive.replies(0) == kept
    archive.append(0, frame(20))
    assert archive.replies(0) == [*kept, frame(20)]


def test_history_starts_at_the_last_fresh_reply(archive):
    fill(archive)
    archive.append(0, frame(4, fresh=True))
    archive.append(0, frame(6))
    ack = Ack(6, checksum_of(frame(6)))
    assert reply_history(archive, 0, ack, 7) == [frame(4, fresh=True), frame(6)]
    before = Ack(3, checksum_of(frame(3)))
    assert reply_history(archive, 0, before, 4) == [
        frame(round_number) for round_number in range(4)
    ]


def test_history_without_its_end_is_rejected(archive):
    fill(archive)
    for device, ack in ((0, Ack(4, 5)), (0, Ack(3, 5)), (1, Ack(0, 5))):
        with pytest.raises(WireError, match=f"reply to round {ack.round}, so the server cannot"):
            reply_history(archive, device, ack, 9)


def test_folder_can_be_reopened_and_only_its_owner_can_read_it(tmp_path):
    fill(FolderArchive(tmp_path / "archive"))
    assert len(FolderArchive(tmp_path / "archive").replies(7)) == 4
    if os.name == "posix":
        assert stat.S_IMODE((tmp_path / "archive").stat().st_mode) == 0o700
        modes = {stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "archive").iterdir()}
        assert modes == {0o600}


@pytest.mark.parametrize(
    "torn", [b"\x00", b"\x05" * 11, bytes(64), b"\xff" * 8 + b"AQLA" + bytes(40)]
)
def test_incomplete_frame_after_a_crash_is_skipped_and_removed(tmp_path, torn):
    archive = FolderArchive(tmp_path)
    fill(archive)
    with (tmp_path / "0.frames").open("ab") as file:
        file.write(torn)
    assert archive.replies(0) == [frame(round_number) for round_number in range(4)]
    archive.rewind(4)
    archive.append(0, frame(4))
    assert archive.replies(0) == [frame(round_number) for round_number in range(5)]


def test_truncated_last_frame_leaves_the_others(tmp_path):
    archive = FolderArchive(tmp_path)
    fill(archive, range(2))
    whole = (tmp_path / "0.frames").read_bytes()
    for length in range(len(whole) // 2, len(whole)):
        (tmp_path / "0.frames").write_bytes(whole[:length])
        assert archive.replies(0) == [frame(0)]


def test_damaged_frame_is_detected(tmp_path):
    archive = FolderArchive(tmp_path)
    fill(archive)
    content = bytearray((tmp_path / "0.frames").read_bytes())
    content[45] ^= 1
    (tmp_path / "0.frames").write_bytes(bytes(content))
    with pytest.raises(WireError, match="damaged"):
        reply_history(archive, 0, Ack(3, checksum_of(frame(3))), 4)
