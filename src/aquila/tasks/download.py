"""Downloads that can be continued, and are verified before they get their final name."""

from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from aquila.tasks.sources import has_checksum

Progress = Callable[[int, int], None]
"""(bytes so far, total bytes)"""

MAX_ATTEMPTS = 5
TIMEOUT_SECONDS = 30.0
CHUNK_BYTES = 1 << 18
# some hosts refuse the user agent of Python
USER_AGENT = "aquila-fl"
RANGE_NOT_SATISFIABLE = 416


def download(
    address: str,
    path: Path,
    checksum: str,
    progress: Progress | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> None:
    """Download a file, continuing an earlier partial download.

    Until the checksum has been verified, the bytes are in a file named like `path` plus `.part`.

    Args:
        address: The URL of the file.
        path: Where to save the file.
        checksum: The expected checksum, written as kind:digits.
        progress: Called after every chunk.
        timeout: Seconds to wait for the server.

    Raises:
        ConnectionError: The download failed. A later call continues it.
        ValueError: The checksum is wrong. The file has been deleted.
    """
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(MAX_ATTEMPTS):
        if _resume_download(address, part, progress, timeout):
            break
    else:
        raise ConnectionError(
            f"the connection to {address} broke {MAX_ATTEMPTS} times; run the same command again "
            "to continue"
        )
    if not has_checksum(part.read_bytes(), checksum):
        part.unlink()
        raise ValueError(f"the file from {address} had a wrong checksum and was deleted")
    part.replace(path)


def _resume_download(address: str, part: Path, progress: Progress | None, timeout: float) -> bool:
    """Append the missing bytes to the partial file. Return whether it is complete."""
    received = part.stat().st_size if part.exists() else 0
    response = _open_at(address, received, timeout)
    if response is None:
        return True
    with response:
        # a server that does not support ranges sends the whole file
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
    """Open the address from a byte offset. None if the file ends there."""
    headers = {"User-Agent": USER_AGENT} | ({"Range": f"bytes={received}-"} if received else {})
    try:
        # only addresses of sources.py come here, and all of them are http or https
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
