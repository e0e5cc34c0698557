"""An outer loop: ranks train on their own for some steps, then exchange coded differences.

The recipe is that of DiLoCo (Douillard et al. 2023, arXiv 2311.08105), with any method in place of
dense differences. What a device half calls the gradient is the difference between the model after
the last round and the model of this rank. The server half gives a step, and the server optimizer
applies it.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from aquila.core.method import Method
from aquila.core.parameter import check_whole_number
from aquila.core.vector import check_theta0
from aquila.core.wire import checksum_of_vector
from aquila.distributed.agreement import check_rounds, check_settings, check_stopped, check_weights
from aquila.distributed.bucket_rounds import BucketRounds, HookSettings
from aquila.distributed.buffer_rounds import average_buffers
from aquila.distributed.buffers import FlatBuffers
from aquila.distributed.exchange import Exchange, Kind, Message
from aquila.distributed.method_choice import make_method
from aquila.distributed.oracle import RankOracle
from aquila.distributed.outer_options import OPTIONS, average_only, make_options
from aquila.distributed.parameters import FlatParameters
from aquila.distributed.rank_model import (
    RankModel,
    SharedModel,
    UnsentModel,
    check_keeps_nothing,
)
from aquila.distributed.rank_sessions import RankSessions
from aquila.distributed.records import RoundRecord
from aquila.distributed.saved_state import RankCounters, check_saved, saved_bytes, settings_text
from aquila.distributed.start import Origin, StartingPoint, agree_on_start
from aquila.native.checksum import crc32
from aquila.runtime.persist import device_to_bytes, read_device, read_server, server_to_bytes


class Outer:
    """Averages the model over all ranks every few steps, through coded frames.

    Train as usual, with your own optimizer, and call `step` after each batch. All ranks must call
    it equally often. After each round all ranks have the same weights, to the bit. Buffers, such as
    the statistics of batch norms, stay those of each rank; see `average_buffers`.

    With `keep_unsent`, a rank keeps the part of its change that it has not sent, so the weights of
    the ranks differ. `shared_weights` and `finish` give the weights that all ranks share.

    Args:
        model: The module. Every rank must start with the same weights.
        method: The method, as text such as `"qsgd:bits=4"`, or the result of `aquila.create` with
            `alpha=1`.
        every: Steps between two rounds.
        seed: Seed of the method's random numbers, the same on all ranks.
        check_weights: Whether the ranks compare a checksum of the weights in each round.
        keep_unsent: Whether a rank keeps what it has not sent in its weights. The server optimizer
            then runs on each rank, before coding.
        exchange: The links to all ranks. Default: `Exchange()`.
        options: Options of `aquila.RunOptions`: the server optimizer with its rates, `on_nan` and
            `upload_limit`.

    Attributes:
        records: One record per round.
        bytes_sent: Bytes of all frames that this rank has sent.
        bytes_received: Bytes of all frames that the other ranks have sent.
    """

    def __init__(
        self,
        model: nn.Module,
        method: str | Method,
        every: int = 50,
        *,
        seed: int = 0,
        check_weights: bool = True,
        keep_unsent: bool = False,
        exchange: Exchange | None = None,
        **options: Any,
    ) -> None:
        chosen = make_method(method, gradients=False)
        self.every = check_whole_number("every", every, 1)
        run_options = make_options(options)
        self._model, self._parameters = model, FlatParameters(model)
        theta = self._parameters.read()
        check_theta0(theta)
        self.exchange = Exchange() if exchange is None else exchange
        rank, ranks = self.exchange.rank, self.exchange.size
        self._oracle = RankOracle(
            lambda start: self._rank_model.difference(start, self.round),
            self._parameters.shapes,
            lambda: self._sessions.server.theta,
        )
        seed = check_whole_number("seed", seed, 0)
        used = {name: run_options.to_dict()[name] for name in OPTIONS}
        shared = {"method": chosen, "every": self.every, "seed": seed, **used}
        self._rank_model: RankModel = SharedModel(self._parameters)
        if keep_unsent:
            check_keeps_nothing(chosen, theta)
            self._rank_model = UnsentModel(self._parameters, theta, run_options)
            run_options, shared["keep_unsent"] = average_only(run_options), True
        self._sessions = RankSessions(chosen, theta, rank, ranks, seed, run_options, self._oracle)
        self._settings = settings_text(shared, self._parameters.shapes, theta.dtype)
        self._checks_weights = check_weights
        self._origin, self._started = Origin.NEW, False
        self._counters = RankCounters()
        self._model_checksum = self._parameters.checksum()
        self.records: list[RoundRecord] = []

    @property
    def round(self) -> int:
        """Number of the next round."""
        return self._sessions.server.round

    @property
    def bytes_sent(self) -> int:
        """Bytes of all frames that this rank has sent."""
        return self._counters.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Bytes of all frames that the other ranks have sent."""
        return self._counters.bytes_received

    def start(self) -> None:
        """Compare settings and weights with all ranks; give new ranks the snapshot of the others.

        The first `step` calls it. Call it before the first batch if ranks may join, because it
        replaces the weights of a new rank.
        """
        if self._started:
            return
        own = StartingPoint(
            self._origin, self._settings, self._model_checksum, self._counters.pending
        )
        pending = agree_on_start(self.exchange, self._sessions, own)
        if pending is not None:
            self._rank_model.join(self._sessions.server.theta)
            self._counters = replace(self._counters, pending=pending)
        self._started = True

    def step(self, loss: float | torch.Tensor | None = None) -> RoundRecord | None:
        """Count a batch. After `every` batches, exchange and return the record of the round.

        Args:
            loss: Loss of the batch, for the records and for methods that need it.
        """
        self.start()
        self._counters = self._counters.after_step(loss)
        return self._run_round() if self._counters.pending == self.every else None

    def finish(self, flush: str | Method | None = None) -> RoundRecord | None:
        """Exchange the steps since the last round, if there are any, and return the record.

        All ranks then have the same weights, also with `keep_unsent`.

        Args:
            flush: A method for what is still unsent, such as `"eden:bits=2"`. Default: it is lost.
        """
        flushing = None if flush is None else make_method(flush, gradients=True)
        self.start()
        record = self._run_round() if self._counters.pending else None
        if flushing is not None:
            self._flush(flushing)
        self._rank_model.join(self._sessions.server.theta)
        return record

    @contextmanager
    def shared_weights(self) -> Iterator[None]:
        """Give the module the weights after the last round, which all ranks share, for a while.

        Use it to evaluate or save the model: `with outer.shared_weights(): ...`.
        """
        own = self._parameters.read()
        self._parameters.write(self._sessions.server.theta)
        try:
            yield
        finally:
            self._parameters.write(own)

    def average_buffers(self) -> None:
        """Replace the floating-point buffers of all ranks by their mean, as dense frames.

        Call it on all ranks before an evaluation or before saving the model. Frames are float32, or
        float64 if a buffer is.
        """
        buffers = FlatBuffers(self._model)
        if buffers.tensors:
            self._count(average_buffers(buffers, self.exchange, self._settings, self.round))

    def state_dict(self) -> dict[str, Any]:
        """Return everything that `load_state_dict` needs, besides the model and your optimizer.

        Save one file per rank, or save all ranks with `torch.distributed.checkpoint`.
        """
        own = {"device": device_to_bytes(self._sessions.device), **self._counters.to_dict()}
        return {
            "settings": self._settings,
            "ranks": self.exchange.size,
            "server": server_to_bytes(self._sessions.server),
            f"rank_{self.exchange.rank}": own | self._rank_model.to_saved(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, or raise ValueError and change nothing.

        The error says whether the state is damaged, of other settings or of another rank.

        A state of another number of ranks gives the model, the moments and the round. The weights
        are then those after that round, and all memories and counters start anew. If a state of
        this number of ranks was saved right after a round, this also sets the weights.
        """
        own, ranks = check_saved(state, self._settings, self.exchange.rank, self.exchange.size)
        sessions, origin = self._sessions, Origin.RESUMED
        if own is None:
            fresh, origin = sessions.make_server(sessions.server.theta, ranks), Origin.MODEL_ONLY
            earlier = read_server(fresh, saved_bytes(state, "server"))
            model = {name: getattr(earlier, name) for name in ("theta", "moments", "round")}
            sessions.server.restore(replace(sessions.server.snapshot(), **model))
            sessions.forget_memory()
            self._counters = RankCounters()
            self._rank_model.join(sessions.server.theta)
        else:
            # all parts are read before one is set, so that a damaged part changes nothing
            server = read_server(sessions.server, saved_bytes(state, "server"))
            device = read_device(sessions.device, saved_bytes(own, "device"))
            saved = self._rank_model.read_saved(own)
            self._counters = RankCounters.from_dict(own, self.every)
            sessions.server.restore(server)
            sessions.device.restore(device)
            self._rank_model.resume(saved, server.theta, write=self._counters.pending == 0)
        self._origin, self._started = origin, False

    def _flush(self, method: Method) -> None:
        """Add the mean of the unsent parts to the shared weights."""
        server, text = self._sessions.server, f"{self._settings}\nflush {method}"
        settings = HookSettings(method, self.exchange, 0, True, text)
        rounds = BucketRounds(settings, (), self._parameters.shapes, server.theta)
        mean, sent, received = rounds.average(self._rank_model.unsent(server.theta))
        self._counters = self._counters.after_exchange(sent, received)
        server.restore(replace(server.snapshot(), theta=server.theta - mean))

    def _run_round(self) -> RoundRecord:
        started, sessions = time.perf_counter(), self._sessions
        round_number, loss = self.round, self._counters.mean_loss
        self._oracle.loss_value = loss
        messages = self._gather()
        outcome = sessions.apply(self.exchange, messages)
        answered = messages[self.exchange.rank].kind is Kind.FRAME
        self._rank_model.finish_round(sessions.server.theta, outcome.upload, answered)
        sent, received = self._count(messages)
        self._counters = self._counters.after_round()
        ratio = sessions.device.notes.get("error_ratio")
        seconds = time.perf_counter() - started
        record = RoundRecord(
            round_number, self._counters.steps, sent, received, seconds,
            outcome.skipped, outcome.refused, outcome.failed, loss, ratio,
        )  # fmt: skip
        self.records.append(record)
        return record

    def _gather(self) -> dict[int, Message]:
        """Return the messages of all ranks, which agree with each other."""
        theta = self._sessions.server.theta
        try:
            self._parameters.check_unchanged()
            kind, body = self._sessions.answer()
        except ValueError as error:
            kind, body = Kind.STOPPED, str(error).encode()
        weights = checksum_of_vector(theta) if self._checks_weights else 0
        settings = crc32(self._settings.encode())
        messages = self.exchange.gather(Message(kind, self.round, settings, weights, body=body))
        check_stopped(messages)
        check_settings(self.exchange, messages, self._settings)
        check_rounds(messages)
        check_weights(messages)
        return messages

    def _count(self, messages: Mapping[int, Message]) -> tuple[int, int]:
        """Count the bytes of frames; return those sent and received."""
        lengths = {r: len(m.body) for r, m in messages.items() if m.kind is Kind.FRAME}
        sent = lengths.pop(self.exchange.rank, 0)
        received = sum(lengths.values())
        self._counters = self._counters.after_exchange(sent, received)
        return sent, received
