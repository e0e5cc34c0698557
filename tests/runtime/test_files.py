"""Atomic writes replace a file completely or leave it as it was."""

import os
import stat

import pytest

from aquila.runtime.files import atomic_file, atomic_write


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_write_replaces_the_file_and_leaves_no_temporary(tmp_path):
    atomic_write(tmp_path / "file", b"old and longer")
    atomic_write(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert names(tmp_path) == ["file"]


def test_old_file_stays_until_the_block_has_ended(tmp_path):
    atomic_write(tmp_path / "file", b"old")
    with atomic_file(tmp_path / "file") as file:
        file.write(b"new")
        file.flush()
        assert (tmp_path / "file").read_bytes() == b"old"
    assert (tmp_path / "file").read_bytes() == b"new"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failed_write_keeps_the_old_file_and_leaves_no_temporary(tmp_path, error):
    atomic_write(tmp_path / "file", b"old")

    def fail():
        with atomic_file(tmp_path / "file") as file:
            file.write(b"new")
            raise error

    with pytest.raises(error):
        fail()
    assert (tmp_path / "file").read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


@pytest.mark.skipif(os.name != "posix", reason="modes are a POSIX concept")
@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o640)])
def test_only_private_files_ignore_the_umask(tmp_path, private, mode):
    before = os.umask(0o026)
    try:
        atomic_write(tmp_path / "file", b"", private=private)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode
