"""One copy of a model per training thread, and the copy that trained last."""

import threading

from aquila.core.random import Key
from aquila.training.flat_module import FlatModule


class ModelCopies:
    """A model and one copy of it for each further thread."""

    def __init__(self, original: FlatModule) -> None:
        self.original = original
        self._local = threading.local()
        self._local.model = original

    @property
    def for_this_thread(self) -> FlatModule:
        """The copy of this thread."""
        model: FlatModule | None = getattr(self._local, "model", None)
        if model is None:
            model = self._local.model = self.original.copy()
        return model


class LastTrained:
    """The copy that trained the last device of the latest round, on whichever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._round: tuple[int, ...] = ()
        self._device: tuple[int, ...] = ()
        self._turns: dict[tuple[int, ...], object] = {}
        self._model: FlatModule | None = None

    def update(self, model: FlatModule, key: Key, turn: object) -> None:
        """Record that a model trains a device. Within a round, the highest device number wins.

        Threads finish in any order, but each of them takes its devices in order of their numbers.

        Args:
            model: The copy that trains.
            key: The key of the turn, which begins with seed, round and device.
            turn: An object of the turn; it is the same in all calls of one turn.
        """
        seed_and_round, device = key.path[:2], key.path[2:3]
        with self._lock:
            # a second turn of a device in one round belongs to a new run
            repeated = self._turns.get(device, turn) is not turn
            if seed_and_round != self._round or repeated:
                self._forget()
            self._round = seed_and_round
            self._turns[device] = turn
            if device >= self._device:
                self._device, self._model = device, model

    def take_accuracy(self) -> float | None:
        """Return the accuracy on the last minibatch of that turn, once.

        None if no device has trained since the last call, or if its targets are not classes.
        """
        with self._lock:
            model = self._model
            self._forget()
        return None if model is None else model.last_accuracy()

    def _forget(self) -> None:
        self._round, self._device, self._turns, self._model = (), (), {}, None
