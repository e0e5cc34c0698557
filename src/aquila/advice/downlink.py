"""How a server can send models, and what that costs: whole, coded, or as relayed uploads."""

from collections.abc import Iterator
from dataclasses import dataclass

from aquila.advice.expectation import DENSE_BYTES
from aquila.advice.facts import Facts, MethodResult
from aquila.advice.situation import Situation
from aquila.methods.parts.periodic_uploads import LARGE_MODEL

FIRST_MODEL_ERROR = 0.5
"""Error of coded models that is advised together with relayed uploads. It codes the first model."""
RELAYING = {"widths": "1", "server_optimizer": "sgd", "upload_limit": "adaptive"}
"""Settings without which uploads cannot always be relayed."""
CODED_MODEL_BYTES = 8.5 / 8
"""Bytes per parameter of a coded first model, about."""


@dataclass(frozen=True)
class Downlink:
    """A way to send models.

    Args:
        down: Bytes per parameter, device and round.
        error: Error of coded models, 0 for whole models.
        relays: Whether the server passes uploads on.
    """

    down: float
    error: float = 0.0
    relays: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the server sends whole models."""
        return not self.error and not self.relays


@dataclass(frozen=True)
class CodedChoice:
    """The coded downlink to advise: its error, and its bytes compared with whole models."""

    error: float
    ratio: float


def downlinks(result: MethodResult, situation: Situation, facts: Facts) -> Iterator[Downlink]:
    """Yield the ways to send models to a method's devices that the situation allows.

    Devices see the uploads of others if the server passes them on, so the situation must ask for
    that.
    """
    coded = coded_downlink(situation, facts)
    if situation.downlink_error == 0 or coded is None:
        yield Downlink(result.down)
    if coded is not None:
        yield Downlink(coded.ratio * result.down, coded.error)
    relayed = relayed_downlink(result, situation, facts)
    if relayed is None or not situation.options.relay_uploads:
        return
    if coded is None or relayed.down < coded.ratio * result.down:
        yield relayed


def coded_downlink(situation: Situation, facts: Facts) -> CodedChoice | None:
    """Return the coded downlink with the largest error that kept the quality in all results.

    Its ratio is the worst one. It needs devices that take part in all rounds.
    """
    if situation.participation < 1:
        return None
    errors = {one.downlink_error for one in facts.coded_downlink}
    allowed = []
    for error in sorted(errors):
        results = [one for one in facts.coded_downlink if one.downlink_error == error]
        if situation.downlink_error not in (0, error):
            continue
        if min(one.gap for one in results) >= -situation.tolerance / 100:
            allowed.append(CodedChoice(error, max(one.ratio for one in results)))
    return allowed[-1] if allowed else None


def relayed_downlink(result: MethodResult, situation: Situation, facts: Facts) -> Downlink | None:
    """Return what relayed uploads cost, None if the model does not follow from them, or at no gain.

    The first model of a device is coded if all devices take part, and whole otherwise.
    """
    if not _can_relay(result.spec, situation, facts):
        return None
    all_take_part = situation.participation == 1
    error = situation.downlink_error or (FIRST_MODEL_ERROR if all_take_part else 0.0)
    down = relayed_bytes(result.up, situation)
    return Downlink(down, error, relays=True) if down < result.down else None


def relayed_bytes(up: float, situation: Situation) -> float:
    """Return the downlink bytes per parameter, device and round with relayed uploads.

    A device that takes part gets all uploads since its last turn, about as many as there are
    devices.
    """
    first = CODED_MODEL_BYTES if situation.participation == 1 else DENSE_BYTES
    uploads, turns = situation.devices * up, situation.rounds * situation.participation
    return uploads + max(0.0, first - uploads) / max(1.0, turns)


def _can_relay(spec: str, situation: Situation, facts: Facts) -> bool:
    """Return whether uploads of a method were relayed in a similar training.

    Our methods have no memory for large models with local epochs, which decides whether the model
    follows from the uploads.
    """
    if any(situation.settings.get(name, value) != value for name, value in RELAYING.items()):
        return False
    is_large = situation.parameters > LARGE_MODEL
    for study in facts.studies:
        found, work = study.find(spec), study.settings["work"]
        same_work = situation.settings.get("work", work) == work
        same_size = (study.parameters > LARGE_MODEL) == is_large
        if found is not None and found.relayed and same_work and same_size:
            return True
    return False
