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


def test_places_are_tried_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate_data_folders(monkeypatch, tmp_path)
    assert data_store.find("wikitext2") is None
    for place in ("debian", "home/.cache/aquila", "data", "named"):
        write_wikitext2(tmp_path / place)
        found = data_store.find("wikitext2")
        assert found is not None
        assert found.path.resolve() == tmp_path / place / "wikitext-2"
    assert data_store.find("wikitext2", tmp_path / "elsewhere") is None


def test_new_data_goes_to_the_named_folder_or_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = isolate_data_folders(monkeypatch, tmp_path)
    assert data_store.default_folder() == named
    monkeypatch.delenv("AQUILA_DATA")
    assert data_store.default_folder() == tmp_path / "home" / ".cache" / "aquila"


def test_a_folder_counts_only_with_all_its_files(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    folder = tmp_path / "cifar-10-batches-py"
    for place in (tmp_path, folder):
        found = data_store.find("cifar10", place)
        assert found is not None
        assert found.path == folder
    (folder / "test_batch").unlink()
    assert data_store.find("cifar10", tmp_path) is None


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "cifar10",
            "CIFAR-10 is not here: run `aquila data fetch cifar10`, or put cifar-10-batches-py/ "
            "or cifar-10-python.tar.gz into {}",
        ),
        (
            "fashion_mnist",
            "Fashion-MNIST is not here: run `aquila data fetch fashion_mnist`, or install "
            "Debian's package dataset-fashion-mnist, or put fashion-mnist/ into {}",
        ),
    ],
)
def test_missing_data_gives_one_sentence_on_how_to_get_it(
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
def test_unknown_names_are_told_what_exists(call: object) -> None:
    with pytest.raises(ValueError, match=r"'cifar'.*did you mean 'cifar10'\?.*wikitext2"):
        call("cifar")  # type: ignore[operator]


def test_verify_names_the_files_that_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_fashion_mnist(tmp_path / "fashion-mnist", packed=True)
    copy = data_store.find_required("fashion_mnist", tmp_path)
    # the checksums of these small files: what is right is what is inside, however it is packed
    right = {file: "md5:" + hashlib.md5(content).hexdigest() for file, content in copy.files()}
    source = Source("fashion_mnist", "Small", ("fashion-mnist",), right, ())
    monkeypatch.setitem(SOURCES, "fashion_mnist", source)
    assert data_store.verify("fashion_mnist", tmp_path) == []
    labels = tmp_path / "fashion-mnist" / "train-labels-idx1-ubyte.gz"
    whole = labels.read_bytes()
    labels.write_bytes(whole[:10])
    assert "train-labels-idx1-ubyte" in data_store.verify("fashion_mnist", tmp_path)
    labels.with_suffix("").write_bytes(b"plain, and wrong")
    assert data_store.verify("fashion_mnist", tmp_path) == ["train-labels-idx1-ubyte"]


def test_verify_looks_into_archives(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "f")
    pack_tar(tmp_path / "f" / "cifar-10-batches-py", tmp_path / "cifar-10-python.tar.gz")
    assert data_store.verify("cifar10", tmp_path) == list(SOURCES["cifar10"].files)


def test_checksums_are_of_the_kind_they_say() -> None:
    assert has_checksum(b"abc", "md5:900150983cd24fb0d6963f7d28e17f72")
    assert not has_checksum(b"abd", "md5:900150983cd24fb0d6963f7d28e17f72")
    assert has_checksum(b"abc", "sha256:" + hashlib.sha256(b"abc").hexdigest())


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_fetched_is_what_is_found(name: str) -> None:
    source = SOURCES[name]
    digits = {"md5": 32, "sha256": 64}
    for checksum in (*source.files.values(), *(item.checksum for item in source.downloads)):
        kind, _, value = checksum.partition(":")
        assert len(value) == digits[kind]
    fetched = {item.path.removesuffix(".gz") for item in source.downloads}
    inside = {f"{source.folders[0]}/{file}" for file in source.files}
    assert source.archive.removesuffix(".gz") in fetched if source.archive else fetched == inside


@pytest.mark.parametrize("name", SOURCES)
def test_real_data_is_as_published(name: str) -> None:
    assert data_store.verify(name, real_data(name)) == []
