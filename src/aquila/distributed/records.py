"""What happened in a round."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class RoundRecord:
    """One exchange of all ranks. Bytes are the lengths of frames.

    Args:
        round: Number of the round.
        steps: Calls of `step` since the start.
        bytes_sent: Bytes of the frame of this rank.
        bytes_received: Bytes of the frames of all other ranks.
        seconds: Duration of the round, with the wait for other ranks.
        skipped: Ranks that sent no vector.
        refused: Ranks whose frames were damaged, or rejected by a limit.
        failed: Ranks that could not take part.
        loss: Mean of the losses that this rank passed to `step`, None without any.
        error_ratio: Relative error of the upload of this rank, None if the method has none.
    """

    round: int
    steps: int
    bytes_sent: int
    bytes_received: int
    seconds: float
    skipped: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    loss: float | None = None
    error_ratio: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the record as a dictionary, for example for a line of JSON."""
        return asdict(self)
