"""The model in a run folder as a state dict: the newest, the best, or that of a checkpoint."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from aquila.core.vector import Vector
from aquila.runtime.persist import read_server_model
from aquila.sim.checkpoint import read_checkpoint_model
from aquila.sim.model_files import (
    StateDict,
    check_model_path,
    read_metadata,
    read_model,
    write_model,
)
from aquila.sim.model_store import BEST_FILE, MODEL_FILE, THETA
from aquila.sim.rollback import SERVER_STATE
from aquila.sim.run_folder import CHECKPOINT_FILE
from aquila.sim.setting import PYTHON, RUN_FILE, Setting, setting_parameters
from aquila.version import __version__

Source = Literal["newest", "best", "checkpoint"]


def export_model(folder: Path, source: Source, target: Path) -> dict[str, str]:
    """Write a model of a run to a `.safetensors` or `.pt` file, and return its metadata.

    The file has the state dict of the module. If the run does not say how to build its module, the
    file has one tensor, `theta`.
    """
    check_model_path(target)
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    if source == "best":
        tensors, metadata = _stored_model(folder / BEST_FILE)
    else:
        tensors, metadata = _newest_model(folder, source == "checkpoint")
    write_model(target, tensors, metadata)
    return metadata


def _stored_model(path: Path) -> tuple[StateDict, dict[str, str]]:
    if not path.exists():
        raise ValueError(f"{path.parent} has no best model; a run that is evaluated writes one")
    return read_model(path), read_metadata(path)


def _newest_model(folder: Path, checkpoint: bool) -> tuple[StateDict, dict[str, str]]:
    """Return the model of the checkpoint, or the final model if that is as new."""
    saved, final = _read_checkpoint(folder), folder / MODEL_FILE
    if saved is None:
        if final.exists() and not checkpoint:
            return _stored_model(final)
        raise ValueError(
            f"{folder} has no checkpoint; a run writes one every --checkpoint-every rounds, at its "
            "end and when it is interrupted"
        )
    rounds, theta = saved
    if not checkpoint and int(read_metadata(final).get("round", -1)) + 1 >= max(1, rounds):
        return _stored_model(final)
    facts = _read_facts(folder / RUN_FILE)
    method = {"method": str(facts["method"])} if "method" in facts else {}
    metadata = {"aquila": __version__, **method, "round": str(rounds - 1)}
    return _state_dict(theta, facts), metadata


def _read_checkpoint(folder: Path) -> tuple[int, Vector] | None:
    """Return the number of rounds and the model of a checkpoint of the simulator or of Flower."""
    if (folder / CHECKPOINT_FILE).exists():
        return read_checkpoint_model(folder / CHECKPOINT_FILE)
    if (folder / SERVER_STATE).exists():
        return read_server_model(folder / SERVER_STATE)
    return None


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text()) if path.exists() else {}
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is not a valid run file: it is not JSON") from None
    return facts if isinstance(facts, dict) else {}


def _state_dict(theta: Vector, facts: dict[str, Any]) -> StateDict:
    """Return the state dict of the module that the run file describes, or only the vector."""
    if facts.get("started_from") == PYTHON or not {"model", "data"} <= set(facts):
        return {THETA: theta}
    values = {name: value for name, value in facts.items() if name in setting_parameters()}
    setting = replace(Setting.of(values), init_from="")  # the checkpoint replaces these weights
    if setting.device == "cuda" and not torch.cuda.is_available():
        setting = replace(setting, device="cpu", precision="float32")
    problem, _ = setting.problem()
    return dict(problem.load(theta.to(problem.theta0.device)).state_dict())
