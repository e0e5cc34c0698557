"""`aquila data` as users see it."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from aquila.tasks import data_store
from aquila.tasks.sources import SOURCES, Download, Source
from helpers.command_line import error_line, output
from helpers.dataset_files import isolate_data_folders, write_cifar10, write_wikitext2

CONTENT = b"a small data set"
CHECKSUM = "md5:" + hashlib.md5(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder in $AQUILA_DATA, with no other data folders."""
    return isolate_data_folders(monkeypatch, tmp_path)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set that needs no network."""
    item = Download("http://nowhere", "tiny/file", CHECKSUM)
    source = Source("tiny", "Tiny", ("tiny",), {"file": CHECKSUM}, (item,))
    monkeypatch.setitem(SOURCES, "tiny", source)

    def download(address: str, path: Path, checksum: str, progress: object) -> None:
        path.parent.mkdir(parents=True)
        path.write_bytes(CONTENT)
        progress(len(CONTENT), len(CONTENT))  # type: ignore[operator]

    monkeypatch.setattr(data_store, "download", download)


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if f" {name} " in line)


def test_importing_the_command_does_not_import_torch() -> None:
    code = "import sys, aquila.cli.data; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_table_shows_which_data_sets_are_present_and_verified(tiny: None, named: Path) -> None:
    (named / "tiny").mkdir(parents=True)
    (named / "tiny" / "file").write_bytes(CONTENT)
    write_wikitext2(named)
    text = output("data")
    assert "ready" in row(text, "digits")
    assert "missing: aquila data fetch cifar10" in row(text, "cifar10")
    assert "verified" in row(text, "tiny")
    assert "wrong checksums" in row(text, "wikitext2")
    assert all(name in text for name in SOURCES)


def test_verify(tiny: None, named: Path) -> None:
    assert "was not found: run `aquila data fetch tiny`" in error_line("data", "verify", "tiny")
    (named / "tiny").mkdir(parents=True)
    (named / "tiny" / "file").write_bytes(CONTENT)
    assert output("data", "verify", "tiny") == f"Tiny in {named / 'tiny'}: all checksums match\n"
    (named / "tiny" / "file").write_bytes(b"damaged")
    assert "has wrong checksums: file" in error_line("data", "verify", "tiny")
    assert "did you mean 'cifar100'" in error_line("data", "verify", "cifar1000")


def test_fetch_prints_the_folder(tiny: None, named: Path, tmp_path: Path) -> None:
    text = output("data", "fetch", "tiny", "--to", str(tmp_path / "there"))
    assert f"Tiny is in {tmp_path / 'there' / 'tiny'}\n" in text
    assert f"Set AQUILA_DATA={tmp_path / 'there'} so that other commands find it\n" in text
    assert "16/16 bytes" in text
    text = output("data", "fetch", "tiny")
    assert f"Tiny is in {named / 'tiny'}\n" in text
    assert "Set AQUILA_DATA" not in text


def test_fetch_without_a_network_gives_one_sentence(
    tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(*_: object) -> None:
        raise ConnectionError("http://nowhere cannot be reached: no network")

    monkeypatch.setattr(data_store, "download", download)
    assert "no network; or get the file in another way" in error_line("data", "fetch", "tiny")


def test_split_plots_and_prints_the_sizes(tmp_path: Path, named: Path) -> None:
    picture = tmp_path / "pictures" / "digits.png"
    text = output("data", "split", "digits", "classes:2", "--devices", "5", "--out", str(picture))
    assert "digits split classes:2: 5 devices with 2" in text
    assert str(picture) in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    write_cifar10(named)
    sizes = "4 devices with 5 to 5 samples, median 5"
    assert sizes in output("data", "split", "cifar10", "iid", "--devices", "4")
    assert (tmp_path / "split.png").exists()


def test_split_follows_from_the_seed(tmp_path: Path) -> None:
    pictures = []
    for number, seed in enumerate("001"):
        path = tmp_path / f"{number}.png"
        output("data", "split", "digits", "dirichlet:0.3", "--seed", seed, "--out", str(path))
        pictures.append(path.read_bytes())
    assert pictures[0] == pictures[1] != pictures[2]


def test_invalid_arguments_give_one_sentence(named: Path) -> None:
    assert "did you mean 'digits'" in error_line("data", "split", "digit", "iid")
    assert "did you mean 'iid'" in error_line("data", "split", "digits", "idd")
    assert "is not of the form classes:COUNT" in error_line("data", "split", "digits", "classes")
    assert "1437 samples cannot be split among 0 devices" in error_line(
        "data", "split", "digits", "iid", "--devices", "0"
    )
    assert "CIFAR-10 was not found" in error_line("data", "split", "cifar10", "iid")
    assert "no data set 'x' to fetch" in error_line("data", "fetch", "x")
