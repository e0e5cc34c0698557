"""The settings of a run that matter: no unused ones, no placeholders for `off` and `all`."""

from collections.abc import Mapping

from aquila.runtime.options import option_parameters
from aquila.sim.setting import setting_parameters
from aquila.training.local_training import training_parameters

NOT_SETTINGS = ("method", "parameters", "started_from")
ENVIRONMENT = ("aquila", "torch", "python", "machine", "gpu")
ONLY_IF_CHANGED = {
    *option_parameters(), *training_parameters(), "data_folder", "init_from", "widths",
    "mask_classes", "augment", "precision", "compile_model", "deterministic",
}  # fmt: skip
"""Settings that are shown only if they differ from their default."""
PLACEHOLDERS = {"samples": "all", "test_samples": "all", "batch_size": "all samples of the device"}
"""What a 0 means."""


def active_settings(facts: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that a run used, by name."""
    shown = {}
    for name, value in facts.items():
        if name in NOT_SETTINGS or name in ENVIRONMENT or value is None or value == "":
            continue
        if name in ONLY_IF_CHANGED and value == _default(name):
            continue
        if name in ("epochs", "data_digest") and not _uses(name, facts):
            continue
        shown[name] = PLACEHOLDERS[name] if name in PLACEHOLDERS and value == 0 else value
    return shown


def active_parameters(facts: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters of the method, without those that are off or chosen automatically."""
    given = facts.get("parameters")
    if not isinstance(given, Mapping):
        return {}
    return {str(name): value for name, value in given.items() if value not in (None, "", 0)}


def _default(name: str) -> object:
    return setting_parameters()[name].default


def _uses(name: str, facts: Mapping[str, object]) -> bool:
    if name == "data_digest":
        return "data" not in facts
    given = facts.get("parameters")
    works = [facts.get("work"), given.get("work") if isinstance(given, Mapping) else None]
    return "epochs" in works and not facts.get("local_steps")
