"""Which key is whose: the public keys of devices, in files as `aquila deploy init` makes them."""

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)

from aquila.core.fleet import DeviceId


def read_keys(folder: Path, devices: int) -> dict[DeviceId, bytes]:
    """Return the key of every device, from `device-0.pub` and so on, in Flower's own form."""
    keys = {device: _read(folder / f"device-{device}.pub") for device in range(devices)}
    if len(set(keys.values())) < devices:
        raise ValueError(f"{folder} has the same key for two devices; each must have its own")
    return keys


def _read(path: Path) -> bytes:
    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm):
        raise ValueError(
            f"{path} is not there or is no public key; keys_folder must hold the device-N.pub of "
            "every device"
        ) from None
    pem: bytes = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem
