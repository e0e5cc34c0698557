"""Requests that are signed as Flower's SuperNode signs them."""

from base64 import b64encode

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)


def signed_headers(private: bytes, signed_at: str | None = None) -> dict[str, str]:
    """Return the headers with which Flower's SuperNode signs a request."""
    key = load_ssh_private_key(private, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    text = signed_at or "2026-11-01T12:00:00+00:00"
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signature = key.sign(text.encode(), ec.ECDSA(hashes.SHA256()))
    return {
        "flwr-public-key": b64encode(public).decode(),
        "flwr-signature": b64encode(signature).decode(),
        "flwr-timestamp": text,
    }
