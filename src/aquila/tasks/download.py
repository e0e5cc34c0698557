"""Downloads that go on where they stopped, and that are checked before they get their name."""

from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from aquila.tasks.sources import has_checksum

Progress = Callable[[int, int], None]
"""(bytes so far, bytes in all)"""

MAX_ATTEMPTS = 5
TIMEOUT_SECONDS = 30.0
CHUNK_BYTES = 1 << 18
# some hosts turn Python's own name away
USER_AGENT = "aquila-fl"
RANGE_NOT_SATISFIABLE = 416


def download(
    address: str,
    path: Path,
    checksum: str,
    progress: Progress | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> None:
    """Fetch a file, going on with what an earlier attempt left; ConnectionError if that fails.

    Until the checksum is right the bytes lie beside the path, under its name and `.part`; with a
    wrong one they are removed, and ValueError is raised.
    """
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(MAX_ATTEMPTS):
        if _resume_download(address, part, progress, timeout):
            break
    else:
        raise ConnectionError(f"{address} broke off again and again; the same command goes on")
    if not has_checksum(part.read_bytes(), checksum):
        part.unlink()
        raise ValueError(f"{address} gave a file with a wrong checksum, which was thrown away")
    part.replace(path)


def _resume_download(address: str, part: Path, progress: Progress | None, timeout: float) -> bool:
    """Add to the part what is missing; whether all of it is there now."""
    received = part.stat().st_size if part.exists() else 0
    response = _open_at(address, received, timeout)
    if response is None:
        return True
    with response:
        # a server that cannot go on begins anew
        if not response.headers.get("Content-Range", "").startswith(f"bytes {received}-"):
            received = 0
        total = received + int(response.headers.get("Content-Length") or 0)
        with part.open("ab" if received else "wb") as file:
            try:
                while chunk := response.read(CHUNK_BYTES):
                    received += file.write(chunk)
                    if progress is not None:
                        progress(received, total)
            except (HTTPException, ConnectionError, TimeoutError):
                return False
    return received >= total


def _open_at(address: str, received: int, timeout: float) -> HTTPResponse | None:
    """Open the address at a byte; None if the file ends there."""
    headers = {"User-Agent": USER_AGENT} | ({"Range": f"bytes={received}-"} if received else {})
    try:
        # the addresses of sources.py, none of them a file
        request = Request(address, headers=headers)
        response: HTTPResponse = urlopen(request, timeout=timeout)  # nosec B310
        return response
    except HTTPError as error:
        error.close()
        if received and error.code == RANGE_NOT_SATISFIABLE:
            return None
        raise ConnectionError(f"{address} answered {error.code} {error.reason}") from None
    except (HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise ConnectionError(f"{address} cannot be reached: {reason}") from None
