"""Downloads from a web server on this machine."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from aquila.tasks import data_store
from aquila.tasks.download import MAX_ATTEMPTS, download
from aquila.tasks.sources import SOURCES, Download, Source

CONTENT = bytes(range(256)) * 40
CHECKSUM = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class Host(HTTPServer):
    """A web server that can cut connections and ignore range requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.content = CONTENT
        self.cuts: list[int] = []
        self.supports_ranges = True
        self.ignores_offset = False
        self.requested_ranges: list[str] = []
        self.agents: set[str] = set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file"


class Answer(BaseHTTPRequestHandler):
    server: Host

    def do_GET(self) -> None:
        requested = self.headers.get("Range", "")
        self.server.requested_ranges.append(requested)
        self.server.agents.add(self.headers["User-Agent"])
        if self.path != "/file":
            self.send_error(404)
            return
        content, start = self.server.content, 0
        if requested and self.server.supports_ranges:
            if not self.server.ignores_offset:
                start = int(requested.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = self.server.cuts.pop(0) if self.server.cuts else len(content)
        self.wfile.write(content[start:end])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Host() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def tiny(host: Host, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A data set with one file, which the host serves."""
    item = Download(host.address, "tiny/file", CHECKSUM)
    source = Source("tiny", "Tiny", ("tiny",), {"file": CHECKSUM}, (item,))
    monkeypatch.setitem(SOURCES, "tiny", source)
    return source


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_file_is_downloaded(host: Host, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    target = tmp_path / "new" / "name"
    download(host.address, target, CHECKSUM, lambda done, total: seen.append((done, total)))
    assert target.read_bytes() == CONTENT
    assert files_in(tmp_path) == ["name"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert host.requested_ranges == [""]
    assert not any("Python" in agent for agent in host.agents)


def test_cut_connection_is_continued(host: Host, tmp_path: Path) -> None:
    host.cuts = [1000, 4000]
    download(host.address, tmp_path / "name", CHECKSUM)
    assert (tmp_path / "name").read_bytes() == CONTENT
    assert host.requested_ranges == ["", "bytes=1000-", "bytes=4000-"]


def test_later_call_continues_download(host: Host, tmp_path: Path) -> None:
    host.cuts = [700] * MAX_ATTEMPTS
    with pytest.raises(
        ConnectionError, match="broke 5 times; run the same command again to continue"
    ):
        download(host.address, tmp_path / "name", CHECKSUM)
    assert files_in(tmp_path) == ["name.part"]
    download(host.address, tmp_path / "name", CHECKSUM)
    assert files_in(tmp_path) == ["name"]
    assert host.requested_ranges[-1] == "bytes=700-"


@pytest.mark.parametrize("fault", [{"supports_ranges": False}, {"ignores_offset": True}])
def test_server_without_ranges_sends_whole_file(
    host: Host, tmp_path: Path, fault: dict[str, bool]
) -> None:
    host.cuts = [1000]
    vars(host).update(fault)
    download(host.address, tmp_path / "name", CHECKSUM)
    assert (tmp_path / "name").read_bytes() == CONTENT
    assert len(host.requested_ranges) == 2


def test_complete_partial_file_is_accepted(host: Host, tmp_path: Path) -> None:
    (tmp_path / "name.part").write_bytes(CONTENT)
    download(host.address, tmp_path / "name", CHECKSUM)
    assert files_in(tmp_path) == ["name"]


@pytest.mark.parametrize("part", [b"", b"something else" * 9, CONTENT + b"more"])
def test_file_with_wrong_checksum_is_deleted(host: Host, tmp_path: Path, part: bytes) -> None:
    if part:
        (tmp_path / "name.part").write_bytes(part)
    else:
        host.content = b"something else"
    with pytest.raises(ValueError, match="wrong checksum"):
        download(host.address, tmp_path / "name", CHECKSUM)
    assert files_in(tmp_path) == []


def test_missing_page_is_reported(host: Host, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="/other answered 404 Not Found"):
        download(host.address.replace("/file", "/other"), tmp_path / "name", CHECKSUM)
    assert files_in(tmp_path) == []


def test_unreachable_host_gives_one_sentence(
    tiny: Source, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HTTPServer(("127.0.0.1", 0), Answer) as closed:
        port = closed.server_port
    item = Download(f"http://127.0.0.1:{port}/file", "tiny/file", CHECKSUM)
    monkeypatch.setitem(SOURCES, "tiny", Source("tiny", "Tiny", ("tiny",), {}, (item,)))
    with pytest.raises(ConnectionError) as error:
        data_store.fetch("tiny", tmp_path)
    sentence = str(error.value)
    assert sentence.startswith(f"http://127.0.0.1:{port}/file cannot be reached: ")
    assert sentence.endswith(
        f"; or get the file in another way and save it as {tmp_path / 'tiny' / 'file'}"
    )
    assert "\n" not in sentence


def test_find_returns_fetched_files(tiny: Source, host: Host, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    copy = data_store.fetch("tiny", tmp_path, lambda *update: seen.append(update))
    assert copy == data_store.find("tiny", tmp_path)
    assert data_store.verify("tiny", tmp_path) == []
    assert seen[-1] == ("file", len(CONTENT), len(CONTENT))


def test_fetch_keeps_valid_files_and_replaces_others(
    tiny: Source, host: Host, tmp_path: Path
) -> None:
    data_store.fetch("tiny", tmp_path)
    data_store.fetch("tiny", tmp_path)
    assert len(host.requested_ranges) == 1
    (tmp_path / "tiny" / "file").write_bytes(b"bad")
    assert data_store.verify("tiny", tmp_path) == ["file"]
    data_store.fetch("tiny", tmp_path)
    assert len(host.requested_ranges) == 2
    assert (tmp_path / "tiny" / "file").read_bytes() == CONTENT
