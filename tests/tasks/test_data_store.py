import hashlib
from pathlib import Path

import pytest

from aquila.tasks import data_store
from aquila.tasks.sources import SOURCES, Source, has_checksum
from helpers.dataset_files import (
    isolate_data_folders,
    pack_tar,
    real_data,
    write_cifar10,
    write_fashion_mnist,
    write_wikitext2,
)


def test_folders_are_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate_data_folders(monkeypatch, tmp_path)
    assert data_store.find("wikitext2") is None
    for folder in ("debian", "home/.cache/aquila", "data", "named"):
        write_wikitext2(tmp_path / folder)
        found = data_store.find("wikitext2")
        assert found is not None
        assert found.path.resolve() == tmp_path / folder / "wikitext-2"
    assert data_store.find("wikitext2", tmp_path / "elsewhere") is None


def test_default_folder_is_environment_variable_or_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = isolate_data_folders(monkeypatch, tmp_path)
    assert data_store.default_folder() == named
    monkeypatch.delenv("AQUILA_DATA")
    assert data_store.default_folder() == tmp_path / "home" / ".cache" / "aquila"


def test_incomplete_folder_is_not_found(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    folder = tmp_path / "cifar-10-batches-py"
    for searched in (tmp_path, folder):
        found = data_store.find("cifar10", searched)
        assert found is not None
        assert found.path == folder
    (folder / "test_batch").unlink()
    assert data_store.find("cifar10", tmp_path) is None


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "cifar10",
            "CIFAR-10 was not found: run `aquila data fetch cifar10`, or put cifar-10-batches-py/ "
            "or cifar-10-python.tar.gz into {}",
        ),
        (
            "fashion_mnist",
            "Fashion-MNIST was not found: run `aquila data fetch fashion_mnist`, or install "
            "Debian's package dataset-fashion-mnist, or put fashion-mnist/ into {}",
        ),
    ],
)
def test_missing_data_error_explains_how_to_get_it(
    name: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = isolate_data_folders(monkeypatch, tmp_path)
    with pytest.raises(FileNotFoundError) as error:
        data_store.find_required(name)
    assert str(error.value) == sentence.format(named)
    with pytest.raises(FileNotFoundError):
        data_store.verify(name)


@pytest.mark.parametrize(
    "call", [data_store.find, data_store.find_required, data_store.verify, data_store.fetch]
)
def test_unknown_name_lists_known_names(call: object) -> None:
    with pytest.raises(ValueError, match=r"'cifar'.*did you mean 'cifar10'\?.*wikitext2"):
        call("cifar")  # type: ignore[operator]


def test_verify_returns_wrong_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_fashion_mnist(tmp_path / "fashion-mnist", packed=True)
    copy = data_store.find_required("fashion_mnist", tmp_path)
    # checksums are of the unpacked content
    checksums = {file: "md5:" + hashlib.md5(content).hexdigest() for file, content in copy.files()}
    source = Source("fashion_mnist", "Small", ("fashion-mnist",), checksums, ())
    monkeypatch.setitem(SOURCES, "fashion_mnist", source)
    assert data_store.verify("fashion_mnist", tmp_path) == []
    labels = tmp_path / "fashion-mnist" / "train-labels-idx1-ubyte.gz"
    labels.write_bytes(labels.read_bytes()[:10])
    assert "train-labels-idx1-ubyte" in data_store.verify("fashion_mnist", tmp_path)
    labels.with_suffix("").write_bytes(b"not compressed, and wrong")
    assert data_store.verify("fashion_mnist", tmp_path) == ["train-labels-idx1-ubyte"]


def test_verify_reads_archives(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "f")
    pack_tar(tmp_path / "f" / "cifar-10-batches-py", tmp_path / "cifar-10-python.tar.gz")
    assert data_store.verify("cifar10", tmp_path) == list(SOURCES["cifar10"].files)


def test_checksum_names_its_kind() -> None:
    assert has_checksum(b"abc", "md5:900150983cd24fb0d6963f7d28e17f72")
    assert not has_checksum(b"abd", "md5:900150983cd24fb0d6963f7d28e17f72")
    assert has_checksum(b"abc", "sha256:" + hashlib.sha256(b"abc").hexdigest())


@pytest.mark.parametrize("name", SOURCES)
def test_downloads_are_the_files_that_find_expects(name: str) -> None:
    source = SOURCES[name]
    digits = {"md5": 32, "sha256": 64}
    for checksum in (*source.files.values(), *(item.checksum for item in source.downloads)):
        kind, _, value = checksum.partition(":")
        assert len(value) == digits[kind]
    fetched = {item.path.removesuffix(".gz") for item in source.downloads}
    inside = {f"{source.folders[0]}/{file}" for file in source.files}
    assert source.archive.removesuffix(".gz") in fetched if source.archive else fetched == inside


@pytest.mark.parametrize("name", SOURCES)
def test_real_data_has_published_checksums(name: str) -> None:
    assert data_store.verify(name, real_data(name)) == []
