"""Atomic writes replace a file completely or leave it as it was."""

import os
import stat
from contextlib import contextmanager

import pytest

from aquila.runtime.files import append, atomic_file, atomic_write, make_folder


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


@contextmanager
def small_files():
    """Let no file grow beyond 100 bytes, as if the disk were full.

    Not a fixture: pytest could not write its own log while the limit holds.
    """
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_failed_append_keeps_the_file_and_names_it(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old\n")
    append(path, b"new\n", sync=True)
    with small_files(), pytest.raises(OSError, match=f"File too large: '{path}'"):
        append(path, b"x" * 200, sync=False)
    assert path.read_bytes() == b"old\nnew\n"


def test_failed_atomic_write_names_the_file(tmp_path):
    path = tmp_path / "file"
    atomic_write(path, b"old")
    with small_files(), pytest.raises(OSError, match=f"File too large: '{path}'"):
        atomic_write(path, b"x" * 200)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_append_needs_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="file"):
        append(tmp_path / "file", b"new", sync=False)


def test_unwritable_place_is_named_without_the_temporary(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="folder'"):
        atomic_write(tmp_path / "folder", b"")
    with pytest.raises(FileNotFoundError, match=r"none/file'$"):
        atomic_write(tmp_path / "none" / "file", b"")


def test_folder_is_made_with_its_parents(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    (tmp_path / "a" / "file").write_text("")
    with pytest.raises(ValueError, match="file is a file, not a folder"):
        make_folder(tmp_path / "a" / "file" / "c")
