"""The public keys of the devices, read from the files that `aquila deploy init` writes."""

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)

from aquila.core.fleet import DeviceId


def read_keys(folder: Path, devices: int) -> dict[DeviceId, bytes]:
    """Return the key of every device from `device-N.pub`, in the PEM form that Flower uses."""
    keys = {device: _read(folder / f"device-{device}.pub") for device in range(devices)}
    if len(set(keys.values())) < devices:
        raise ValueError(
            f"{folder} has the same key for two devices; every device needs its own key"
        )
    return keys


def _read(path: Path) -> bytes:
    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm):
        raise ValueError(
            f"{path} does not exist or is not a public key; keys_folder must hold a device-N.pub "
            "for every device"
        ) from None
    pem: bytes = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem
