"""Compressed files of runs are reproducible, atomic, and read like other files."""

import gzip
from pathlib import Path

import pytest

from aquila.sim.compressed import find_file, read_file, write_file
from aquila.sim.records import read_records, records_file, to_line, write_records
from helpers.fake_records import fake_record

CONTENT = b'{"a": 1}\n' * 500


def content_or_complaint(path: Path) -> bytes | str:
    try:
        return read_file(path)
    except ValueError as error:
        return str(error)


def test_compressed_file_is_a_gzip_file(tmp_path):
    path = tmp_path / "x.gz"
    write_file(path, CONTENT)
    assert gzip.decompress(path.read_bytes()) == read_file(path) == CONTENT
    assert path.stat().st_size < 100


def test_bytes_contain_no_name_time_or_system(tmp_path):
    write_file(tmp_path / "x.gz", CONTENT)
    write_file(tmp_path / "y.gz", CONTENT)
    first, second = ((tmp_path / name).read_bytes() for name in ("x.gz", "y.gz"))
    assert first == second
    assert first[:10] == bytes([0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 2, 255])


def test_truncated_file_is_an_error(tmp_path):
    path = tmp_path / "x.gz"
    write_file(path, CONTENT)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"x\.gz is damaged: it is not a complete gzip file"):
            read_file(path)


def test_flipped_bit_is_an_error_or_harmless(tmp_path):
    path = tmp_path / "x.gz"
    write_file(path, CONTENT)
    whole = path.read_bytes()
    found = []
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        found.append(content_or_complaint(path))
    complaint = f"{path} is damaged: it is not a complete gzip file"
    assert set(found) == {CONTENT, complaint}
    assert found.count(complaint) > len(whole) / 2


def test_interrupt_leaves_no_partial_file(tmp_path, monkeypatch):
    def stop(path: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "x.gz", CONTENT)
    assert not list(tmp_path.iterdir())


def test_uncompressed_file_takes_precedence(tmp_path):
    write_file(tmp_path / "records.jsonl.gz", to_line(fake_record(0)).encode())
    assert records_file(tmp_path) == tmp_path / "records.jsonl.gz"
    assert len(read_records(tmp_path)) == 1
    write_records(tmp_path, [fake_record(0), fake_record(1)])
    assert records_file(tmp_path) == tmp_path / "records.jsonl"
    assert len(read_records(tmp_path)) == 2


def test_empty_folder_has_no_records(tmp_path):
    assert find_file(tmp_path / "x") is None
    assert read_records(tmp_path / "nowhere") == []


def test_invalid_line_of_a_compressed_file_is_named(tmp_path):
    write_file(tmp_path / "records.jsonl.gz", to_line(fake_record(3)).encode())
    with pytest.raises(ValueError, match=r"records\.jsonl\.gz, line 1, is not the record of round"):
        read_records(tmp_path)
