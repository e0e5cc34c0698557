"""Downloads that go on where they stopped, and that are checked before they get their name."""

from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from aquila.tasks.sources import matches

Progress = Callable[[int, int], None]
"""(bytes so far, bytes in all)"""

ATTEMPTS = 5
TIMEOUT_SECONDS = 30.0
PIECE_BYTES = 1 << 18
# some hosts turn Python's own name away
AGENT = "aquila-fl"
NOTHING_LEFT = 416


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
    for _ in range(ATTEMPTS):
        if _go_on(address, part, progress, timeout):
            break
    else:
        raise ConnectionError(f"{address} broke off again and again; the same command goes on")
    if not matches(part.read_bytes(), checksum):
        part.unlink()
        raise ValueError(f"{address} gave a file with a wrong checksum, which was thrown away")
    part.replace(path)


def _go_on(address: str, part: Path, progress: Progress | None, timeout: float) -> bool:
    """Add to the part what is missing; whether all of it is there now."""
    have = part.stat().st_size if part.exists() else 0
    answer = _ask(address, have, timeout)
    if answer is None:
        return True
    with answer:
        # a server that cannot go on begins anew
        if not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            have = 0
        total = have + int(answer.headers.get("Content-Length") or 0)
        with part.open("ab" if have else "wb") as file:
            try:
                while piece := answer.read(PIECE_BYTES):
                    have += file.write(piece)
                    if progress is not None:
                        progress(have, total)
            except (HTTPException, ConnectionError, TimeoutError):
                return False
    return have >= total


def _ask(address: str, have: int, timeout: float) -> HTTPResponse | None:
    """Open the address at a byte; None if the file ends there."""
    headers = {"User-Agent": AGENT} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        # the addresses of sources.py, none of them a file
        request = Request(address, headers=headers)
        answer: HTTPResponse = urlopen(request, timeout=timeout)  # nosec B310
        return answer
    except HTTPError as error:
        error.close()
        if have and error.code == NOTHING_LEFT:
            return None
        raise ConnectionError(f"{address} answered {error.code} {error.reason}") from None
    except (HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise ConnectionError(f"{address} cannot be reached: {reason}") from None
