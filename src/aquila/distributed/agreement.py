"""Checks that all ranks agree, from messages that all of them have.

All ranks see the same messages, so either no rank raises an error, or all raise the same one.
"""

from collections.abc import Callable, Mapping

from aquila.distributed.exchange import Exchange, ExchangeError, Kind, Message

Messages = Mapping[int, Message]
"""Message per rank."""


def check_stopped(messages: Messages) -> None:
    """Raise ExchangeError if a rank cannot go on."""
    for rank, message in messages.items():
        if message.kind is Kind.STOPPED:
            raise ExchangeError(f"rank {rank}: {message.text}")


def check_settings(exchange: Exchange, messages: Messages, settings: str) -> None:
    """Raise ExchangeError if a rank has other settings; the ranks exchange them to say which."""
    first, other = _find_other(messages, lambda message: message.settings)
    if other is None:
        return
    texts = exchange.gather(Message(Kind.TEXT, body=settings.encode()))
    theirs, ours = texts[other].text.splitlines(), texts[first].text.splitlines()
    has = "; ".join(line for line in theirs if line not in ours)
    lacks = "; ".join(line for line in ours if line not in theirs)
    raise ExchangeError(
        f"rank {other} has other settings than rank {first}: {has or 'nothing'} instead of "
        f"{lacks or 'nothing'}; give all ranks the same settings and calls"
    )


def check_rounds(messages: Messages) -> None:
    """Raise ExchangeError if the ranks are not in the same round."""
    first, other = _find_other(messages, lambda message: message.round)
    if other is not None:
        raise ExchangeError(
            f"rank {other} is in round {messages[other].round}, but rank {first} is in round "
            f"{messages[first].round}; load states of the same round on all ranks"
        )


def check_pending(messages: Messages) -> None:
    """Raise ExchangeError if the bodies, the numbers of steps since the last round, differ."""
    first, other = _find_other(messages, lambda message: message.body)
    if other is not None:
        raise ExchangeError(
            f"rank {other} is {messages[other].text} steps after round {messages[other].round}, "
            f"but rank {first} is {messages[first].text}; load states of the same step on all ranks"
        )


def check_weights(messages: Messages) -> None:
    """Raise ExchangeError if two ranks have different weights."""
    first, other = _find_other(_with_checksums(messages), lambda message: message.weights)
    if other is not None:
        raise ExchangeError(
            f"rank {other} has other weights than rank {first} at the start of round "
            f"{messages[first].round}; make the model with the same seed, or load the same file, "
            "on all ranks"
        )


def check_means(messages: Messages) -> None:
    """Raise ExchangeError if two ranks computed different means in the last round."""
    first, other = _find_other(_with_checksums(messages), lambda message: message.weights)
    if other is not None:
        raise ExchangeError(
            f"rank {other} got another mean gradient than rank {first} before round "
            f"{messages[first].round}; load states of the same step on all ranks"
        )


def _with_checksums(messages: Messages) -> Messages:
    """Return the messages of the ranks that compare checksums, or all if none does."""
    return {rank: message for rank, message in messages.items() if message.weights} or messages


def _find_other(messages: Messages, value: Callable[[Message], object]) -> tuple[int, int | None]:
    """Return the first rank, and the next one with another value, None if all values are equal."""
    first = min(messages)
    expected = value(messages[first])
    return first, next((r for r, message in messages.items() if value(message) != expected), None)
