"""Copies of a model for the threads that train it, and which of them worked last."""

import threading

from aquila.core.random import Key
from aquila.sim.flat_module import FlatModule


class ModelCopies:
    """A model, and a copy of it for every other thread that asks."""

    def __init__(self, original: FlatModule) -> None:
        self.original = original
        self._local = threading.local()
        self._local.model = original

    @property
    def for_this_thread(self) -> FlatModule:
        """The copy of this thread."""
        if not hasattr(self._local, "model"):
            self._local.model = self.original.copy()
        model: FlatModule = self._local.model
        return model


class LastTrained:
    """The model that trained the last device of the last round, whichever thread it was on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn: tuple[int, ...] = ()
        self._model: FlatModule | None = None

    def update(self, model: FlatModule, key: Key) -> None:
        """Note a turn; threads work on devices in their order, so a copy's last turn stands."""
        turn = key.path[1:3]
        with self._lock:
            if turn[:1] != self._turn[:1] or turn >= self._turn:  # an earlier round: another run
                self._turn, self._model = turn, model

    def accuracy(self) -> float:
        """Accuracy on the last minibatch of that turn; 0 before the first one."""
        return 0.0 if self._model is None else self._model.last_accuracy()
