"""The keys of the devices, as the proxy knows them: who signed a request.

A device signs the time of every request with its key. The proxy checks this before it reads the
body, so a sender without a key of the federation cannot make it hold more than a header.
"""

import binascii
import time
from base64 import b64decode
from logging import getLogger
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)

from aquila.deploy.http_server import Request

KEY_HEADER = b"flwr-public-key"
SIGNATURE_HEADER = b"flwr-signature"
TIME_HEADER = b"flwr-timestamp"

LOG = getLogger("aquila.proxy")

RELOAD_SECONDS = 1.0
"""How often the folder may be read again, if it has changed."""


class DeviceKeys:
    """The public keys `device-N.pub` of a folder. New and replaced files are noticed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys: dict[bytes, tuple[str, ec.EllipticCurvePublicKey]] = {}
        self._changed_at = -1
        self._read_at = float("-inf")
        self._reload()
        if not self._keys:
            raise ValueError(f"{folder} holds no public key of a device, such as device-0.pub")

    def signer(self, request: Request) -> str | None:
        """Return the name of the device that signed a request; None if there is none."""
        key, signature, signed_at = (
            request.header(name) for name in (KEY_HEADER, SIGNATURE_HEADER, TIME_HEADER)
        )
        if key is None or signature is None or signed_at is None:
            return None
        self._reload()
        try:
            name, public_key = self._keys[b64decode(key, validate=True)]
            public_key.verify(
                b64decode(signature, validate=True), signed_at, ec.ECDSA(hashes.SHA256())
            )
        except (KeyError, binascii.Error, InvalidSignature):
            return None
        return name

    def _reload(self) -> None:
        """Read the folder, if it has changed since it was last read."""
        if time.monotonic() < self._read_at + RELOAD_SECONDS:
            return
        self._read_at = time.monotonic()
        changed_at = self._folder.stat().st_mtime_ns if self._folder.is_dir() else -1
        if changed_at == self._changed_at != -1:
            return
        keys: dict[bytes, tuple[str, ec.EllipticCurvePublicKey]] = {}
        for path in sorted(self._folder.glob("device-*.pub")):
            try:
                keys |= _read_key(path)
            except ValueError as error:  # also a file that is just being written
                LOG.warning("%s", error)
                changed_at = -1
        self._changed_at, self._keys = changed_at, keys


def _read_key(path: Path) -> dict[bytes, tuple[str, ec.EllipticCurvePublicKey]]:
    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError(f"{path} is not the public key of a device; it is ignored")
    return {key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo): (path.stem, key)}
