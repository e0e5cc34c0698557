"""Differential privacy on Flower: secret noise, and options that both sides must share."""

import secrets

from aquila.core.packet import WireError
from aquila.core.random import Key
from aquila.runtime.options import RunOptions
from aquila.runtime.privacy import describe_privacy

PRIVACY_KEY = "privacy"
"""In a query: the privacy options of the server, if it has any."""


def secret_key(key: Key) -> Key:
    """Return a random key. Devices know the seed of the run, so they could repeat its draws."""
    return Key((secrets.randbits(128), *key.path[1:]))


def check_same_privacy(required: str, options: RunOptions) -> None:
    """Raise WireError unless a device has the privacy options of the server."""
    own = describe_privacy(options) if options.is_private else ""
    if required != own:
        raise WireError(
            f"the server runs {required or 'without privacy options'}, but this device runs "
            f"{own or 'without privacy options'}; give client_app the same options"
        )
