"""The device side: a ClientApp that answers orders with frames."""

import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from aquila.core.fleet import DeviceId
from aquila.core.method import Method, Shard, check_method
from aquila.core.packet import RelayedUploads, WireError
from aquila.core.vector import Vector
from aquila.core.wire import unpack
from aquila.flower.device_files import answer_from_disk, default_state_folder
from aquila.flower.privacy import PRIVACY_KEY, check_same_privacy, secret_key
from aquila.flower.signing import (
    HELLO,
    IDENTITY_VARIABLE,
    INTRODUCTION,
    ORDER,
    REPLY,
    Seal,
    open_message,
    read_device_identity,
)
from aquila.flower.transport import (
    CONTROL_KEY,
    ERROR_KEY,
    MODEL_KEY,
    NOTE_PREFIX,
    REPLY_KEY,
    SAMPLES_KEY,
    Value,
    config_of,
    config_value,
    content_of,
    frame_of,
    one_line,
)
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.messages import Order
from aquila.runtime.options import RunOptions
from aquila.runtime.services import Services
from aquila.sim.oracle import Device, as_shard, samples_of

ACTION = "aquila"
NUMBER_KEYS = ("partition-id", "device")
"""Keys of the node config that may hold the device number."""

MakeDevice = Callable[[DeviceId, Context], Device]
"""(device number, Flower's context) -> the device's data: a shard, an oracle or a function"""

MakeMethod = Callable[[Context], Method]

LOG = getLogger("flwr.aquila")
_SHARDS: dict[tuple[str, DeviceId], Shard] = {}
"""The data of the devices in this process, by run and device. Only the latest run is kept."""


def client_app(
    method: Method | MakeMethod,
    make_device: MakeDevice,
    *,
    state_folder: Path | str | None = None,
    identity_folder: Path | str | None = None,
    threads: int = 1,
    options: RunOptions = RunOptions(),
) -> ClientApp:
    """Return the ClientApp that runs on every device.

    Args:
        method: The method, or a function that creates it from Flower's context. A function can
            read parameters from the run's configuration.
        make_device: Returns the data of a device. It is called once per process, when the first
            order arrives.
        state_folder: Where the device stores its state between messages. Default:
            `$XDG_STATE_HOME/aquila/flower`, or `~/.local/state/aquila/flower`.
        identity_folder: Folder of the keys that sign messages. Default: `$AQUILA_IDENTITY`, which
            a device of `aquila deploy` has. If set, the device obeys only the server's key.
        threads: Threads that a device computes on. Only 1 guarantees the same bits everywhere.
        options: The privacy options of the run. With `dp_noise_by="devices"` this device adds the
            noise. A device without them takes no part in a run that has them.
    """
    folder = default_state_folder() if state_folder is None else Path(state_folder)
    identity = identity_folder or os.environ.get(IDENTITY_VARIABLE)
    identity_path = None if not identity else Path(identity).absolute()
    handlers = DeviceHandlers(
        method, make_device, folder.absolute(), identity_path, threads, options
    )
    app = ClientApp()
    app.query(ACTION)(handlers.hello)
    app.train(ACTION)(handlers.turn)
    return app


def device_number(context: Context) -> DeviceId:
    """Return the device number that a node was started with."""
    for name in NUMBER_KEYS:
        number = context.node_config.get(name)
        if type(number) is int and number >= 0:
            return number
    raise ValueError(
        "this node has no device number; start its SuperNode with --node-config 'partition-id=N', "
        "where N is 0, 1, 2, ..."
    )


@dataclass(frozen=True)
class DeviceHandlers:
    """The handlers for messages from the server."""

    method: Method | MakeMethod
    make_device: MakeDevice
    folder: Path
    identity_folder: Path | None
    threads: int
    options: RunOptions

    def hello(self, message: Message, context: Context) -> Message:
        """Reply with the device number of this node, and its samples if they are weights."""
        return self._reply(message, context, (HELLO, INTRODUCTION), self._introduce)

    def turn(self, message: Message, context: Context) -> Message:
        """Answer an order with a frame, or with an error message of one line."""
        return self._reply(message, context, (ORDER, REPLY), self._answer)

    def _reply(
        self,
        message: Message,
        context: Context,
        directions: tuple[str, str],
        answer: Callable[[RecordDict, Context], RecordDict],
    ) -> Message:
        """Answer a message whose signature is valid, and sign the answer."""
        seal = Seal()
        try:
            if self.identity_folder is not None:
                identity = read_device_identity(self.identity_folder)
                seal = open_message(
                    identity, message, context.node_id, device_number(context), directions
                )
            content = answer(message.content, context)
        except Exception as error:
            content = _error_content(error)
        seal.sign(content)
        return Message(content, reply_to=message)

    def _introduce(self, content: RecordDict, context: Context) -> RecordDict:
        required, own = config_value(content, "method", str), repr(self._method(context))
        if required != own:
            raise WireError(f"the server runs {required}, but this device runs {own}")
        values = config_of(content)
        if PRIVACY_KEY in values or self.options.is_private:
            check_same_privacy(str(values.get(PRIVACY_KEY, "")), self.options)
        device = device_number(context)
        introduction: dict[str, Value] = {"device": device}
        if SAMPLES_KEY in config_of(content):
            shard = self._shard(config_value(content, SAMPLES_KEY, str), device, context)
            introduction["samples"] = samples_of(device, shard)
        return content_of(introduction, {})

    def _answer(self, content: RecordDict, context: Context) -> RecordDict:
        torch.set_num_threads(self.threads)
        run, device = config_value(content, "run", str), device_number(context)
        order = Order(frame_of(content, MODEL_KEY), frame_of(content, CONTROL_KEY))
        session = DeviceSession(
            self._method(context),
            device,
            self._shard(run, device, context),
            _template_of(order),
            config_value(content, "seed", int),
            self.options,
            services=Services(secret_key=secret_key),
        )
        frame = answer_from_disk(session, order, self.folder, run)
        return content_of(_notes(session.notes), {REPLY_KEY: frame})

    def _method(self, context: Context) -> Method:
        method = self.method if isinstance(self.method, Method) else self.method(context)
        check_method(method)
        return method

    def _shard(self, run: str, device: DeviceId, context: Context) -> Shard:
        if (run, device) not in _SHARDS:
            for other in [key for key in _SHARDS if key[0] != run]:
                del _SHARDS[other]
            _SHARDS[run, device] = as_shard(self.make_device(device, context))
        return _SHARDS[run, device]


def _error_content(error: Exception) -> RecordDict:
    expected = isinstance(error, ArithmeticError | OSError | TypeError | ValueError)
    LOG.error("%s", error, exc_info=not (expected and _raised_by_aquila(error)))
    text = error if expected else f"{type(error).__name__}: {error}"
    return content_of({ERROR_KEY: one_line(text)}, {})


def _raised_by_aquila(error: Exception) -> bool:
    """Whether AQUILA raised the error; other errors are logged with their traceback."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith("aquila.")


def _template_of(order: Order) -> Vector:
    """Return a vector of the model's length and type: the model or a difference of models."""
    vector = unpack(order.model).vector
    if vector is None:
        raise WireError("the order has no model")
    if isinstance(vector, RelayedUploads):
        return torch.zeros(vector.dimension, dtype=vector.dtype)
    return vector.decode()


def _notes(notes: Mapping[str, float]) -> dict[str, Value]:
    return {f"{NOTE_PREFIX}{name}": float(value) for name, value in notes.items()}
