"""The functions that receive every record of a run, and can end the run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from aquila.core.method import Method
from aquila.runtime.options import RunOptions
from aquila.sim.records import Record

Callback = Callable[[Record], object]
"""A function of a record. If it returns True, the run ends after this round.

An object may also have `begin(start: RunStart)`, called before the first round, and
`close(finished: bool)`, called at the end. `finished` is False after an error or an interrupt.
"""

OnRecord = Callback | Sequence[Callback]


@dataclass(frozen=True)
class RunStart:
    """A run at its beginning, for callbacks.

    Args:
        method: The method.
        rounds: Number of rounds, those of a resumed run included.
        seed: Seed of the run.
        options: Options of the run.
        records: Rounds that are already done, if the run is resumed.
        work: Batch size, epochs and local training by name, if all devices have the same.
    """

    method: Method
    rounds: int
    seed: int
    options: RunOptions
    records: Sequence[Record] = ()
    work: Mapping[str, object] = field(default_factory=dict)

    @property
    def folder(self) -> Path | None:
        """The folder of the run, if it has one."""
        return None if self.options.out is None else Path(self.options.out)


class Callbacks:
    """The callbacks of a run, called in order."""

    def __init__(self, on_record: OnRecord | None) -> None:
        if on_record is None:
            self._callbacks: Sequence[Callback] = ()
        else:
            self._callbacks = on_record if isinstance(on_record, Sequence) else (on_record,)
        for callback in self._callbacks:
            if not callable(callback):
                raise TypeError(
                    f"on_record must be a function of a record or a list of them, not {callback!r}"
                )

    @contextmanager
    def opened(self, start: RunStart) -> Iterator[None]:
        """Begin all callbacks, and close them at the end, even after an error."""
        with ExitStack() as stack:
            for callback in self._callbacks:
                if hasattr(callback, "close"):
                    stack.push(partial(_close, callback))
                if hasattr(callback, "begin"):
                    callback.begin(start)
            yield

    def __call__(self, record: Record) -> bool:
        """Pass a record to all callbacks; return whether one of them ends the run."""
        # only True: many functions, such as `file.write`, return other values
        answers = [callback(record) for callback in self._callbacks]
        return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)


def _close(callback: Any, kind: object, error: object, traceback: object) -> None:
    callback.close(error is None)
