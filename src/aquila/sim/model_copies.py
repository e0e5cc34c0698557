"""One copy of a model per training thread, and the copy that trained last."""

import threading

from aquila.core.random import Key
from aquila.sim.flat_module import FlatModule


class ModelCopies:
    """A model and one copy of it for each further thread."""

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
    """The copy that trained the last device of the latest round, on whichever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn: tuple[int, ...] = ()
        self._model: FlatModule | None = None

    def update(self, model: FlatModule, key: Key) -> None:
        """Record that a model trains a device. Within a round, the highest device number wins.

        Threads finish in any order, but each of them takes its devices in order of their numbers.
        """
        turn = key.path[1:3]  # round and device
        with self._lock:
            new_round = turn[:1] != self._turn[:1]  # an earlier one if a new run has begun
            if new_round or turn >= self._turn:
                self._turn, self._model = turn, model

    def accuracy(self) -> float:
        """Return the accuracy on the last minibatch of that turn; 0 before the first turn."""
        return 0.0 if self._model is None else self._model.last_accuracy()
