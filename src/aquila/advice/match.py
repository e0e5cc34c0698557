"""Finds the comparisons that are most like a situation, and says how sure advice from them is."""

import math
from dataclasses import dataclass
from typing import Literal

from aquila.advice.facts import Facts, Study
from aquila.advice.situation import Situation, is_iid
from aquila.runtime.options import RECIPE
from aquila.sim.setting import Setting
from aquila.training.local_training import training_parameters

Sureness = Literal["high", "medium", "low"]
LEVELS: tuple[Sureness, ...] = ("low", "medium", "high")
SAME_SIZE, SIMILAR_SIZE = 1.1, 20.0
"""Factors between models that count as the same, or as similar."""
SIMILAR_LENGTH = 3.0
"""Factor between numbers of devices or rounds that count as similar."""
OTHER_KIND_OF_SPLIT, OTHER_SPLIT = 3.0, 0.5
OTHER_MODEL, OTHER_DATA, OTHER_SETTING = 0.5, 0.5, 0.05
"""Distances, in powers of ten of the number of parameters."""


TRAINING = ("work", "batch_size", "epochs", "augment", *training_parameters(), *RECIPE)
"""Settings of the training that comparisons may differ in."""


@dataclass(frozen=True)
class Match:
    """A comparison that is like a situation.

    Args:
        study: The comparison.
        sureness: How sure advice from it is.
        differences: How it differs from the situation, as parts of a sentence.
    """

    study: Study
    sureness: Sureness
    differences: tuple[str, ...]


def find_matches(situation: Situation, facts: Facts) -> list[Match]:
    """Return the comparisons to use, the one that is most like the situation first.

    If it has the same model and split, it is the only one. Else all comparisons with the same kind
    of split follow. Of equal ones, that with the best training comes first.
    """
    studies = sorted(
        facts.studies, key=lambda one: (round(_distance(situation, one), 3), -one.dense_quality)
    )
    alike = [study for study in studies if is_iid(study.split) == situation.iid] or studies
    matches = [
        Match(study, _sureness(situation, study), _differences(situation, study)) for study in alike
    ]
    return matches[:1] if matches[0].sureness == "high" else matches


def _distance(situation: Situation, study: Study) -> float:
    distance = 0.0
    if situation.split != study.split:
        same_kind = situation.iid == is_iid(study.split)
        distance += OTHER_SPLIT if same_kind else OTHER_KIND_OF_SPLIT
    if situation.model != study.model:
        distance += OTHER_MODEL
    if situation.data not in ("", study.task):
        distance += OTHER_DATA
    distance += OTHER_SETTING * len(_other_settings(situation, study))
    distance += abs(math.log10(situation.parameters / study.parameters))
    for ours, theirs in ((situation.devices, study.devices), (situation.rounds, study.rounds)):
        distance += 0.25 * abs(math.log10(ours / theirs))
    return distance


def _other_settings(situation: Situation, study: Study) -> set[str]:
    """Return the known settings that differ from those of a comparison."""
    theirs = {**Setting().to_dict(), "alpha": None, **study.settings}
    ours = situation.settings
    return {name for name in ours if name in TRAINING and ours[name] != theirs[name]}


def _factor(one: float, other: float) -> float:
    return max(one / other, other / one)


def _sureness(situation: Situation, study: Study) -> Sureness:
    size = _factor(situation.parameters, study.parameters)
    same_kind = situation.iid == is_iid(study.split)
    fleet = _factor(situation.devices * situation.participation, study.devices)
    length = _factor(situation.rounds, study.rounds)
    same = (
        size <= SAME_SIZE
        and situation.model in ("", study.model)
        and situation.data in ("", study.task)
        and situation.split == study.split
        and "work" not in _other_settings(situation, study)
    )
    if same and max(fleet, length) <= SIMILAR_LENGTH:
        return "high"
    if same or (same_kind and size <= SIMILAR_SIZE and max(fleet, length) <= SIMILAR_SIZE):
        return "medium"
    return "low"


def _differences(situation: Situation, study: Study) -> tuple[str, ...]:
    found = []
    if _factor(situation.parameters, study.parameters) > SAME_SIZE:
        found.append(f"{study.parameters:,} parameters instead of {situation.parameters:,}")
    elif situation.model not in ("", study.model):
        found.append(f"the model {study.model}")
    if situation.data not in ("", study.task):
        found.append(f"the data {study.task}")
    if situation.split != study.split:
        found.append(f"split {study.split} instead of {situation.split}")
    if "work" in _other_settings(situation, study):
        found.append(f"local work {study.settings['work']} instead of {situation.settings['work']}")
    per_round = situation.devices * situation.participation
    if _factor(per_round, study.devices) > SIMILAR_LENGTH:
        found.append(f"{study.devices} devices per round instead of {per_round:,.0f}")
    if _factor(situation.rounds, study.rounds) > SIMILAR_LENGTH:
        found.append(f"{study.rounds} rounds instead of {situation.rounds:,}")
    return tuple(found)
