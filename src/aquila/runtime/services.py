"""Functions that the owner of a session may replace, passed as one argument."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aquila.core.fleet import DeviceId
from aquila.core.link import LinkState
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.core.wire import unpack
from aquila.runtime.frame_spool import FrameSpool
from aquila.runtime.reference import ResolveModel, resolve_model

Links = Callable[[int, Sequence[DeviceId]], Mapping[DeviceId, LinkState]]
"""(round, devices) -> the links of devices that take part in a round together."""

SecretKey = Callable[[Key], Key]
"""key of a simulated draw -> key of a draw that protects privacy"""


class StoreState(Protocol):
    """Decides where the states of devices are stored."""

    def __call__(self, device: DeviceId, state: Any, *in_use: Any) -> Any:
        """Store a state and return an equal one that the session continues with.

        `in_use` are the other states that the device still needs. They must not be overwritten.
        """
        ...


def keep_in_memory(device: DeviceId, state: Any, *in_use: Any) -> Any:
    """Return the state itself."""
    return state


def same_key(key: Key) -> Key:
    """Return the key itself, so that a simulation can be repeated."""
    return key


def no_spool() -> None:
    """Return no place for frames."""


@dataclass(frozen=True)
class Services:
    """Functions that sessions call. The defaults suit sessions on separate machines.

    Args:
        unpack: Reads a frame. The simulator reads frames that many devices share only once.
        resolve_model: Returns the model that a model frame represents.
        store_state: Stores a device's state after a turn.
        links: Returns the links of a round. None without a link model.
        new_spool: Creates the place where the server keeps the frames of a round. Replies are then
            decoded again when the round is closed, so they take no memory until then. Default:
            there is none, and decoded replies stay in memory, which is faster.
        secret_key: Replaces the keys of privacy noise and of private samples of devices. Everyone
            who knows the seed knows the default, so deployments return a random key.
    """

    unpack: Callable[..., Packet] = unpack
    resolve_model: ResolveModel = resolve_model
    store_state: StoreState = keep_in_memory
    links: Links | None = None
    new_spool: Callable[[], FrameSpool | None] = no_spool
    secret_key: SecretKey = same_key
