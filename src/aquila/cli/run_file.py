"""The method, setting and environment of a run: for its folder, and for trackers."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from aquila.sim.setting import RUN_FILE, SPLIT_FILE, Setting
from aquila.version import __version__

if TYPE_CHECKING:
    from aquila.cli.method_spec import MethodSpec
    from aquila.sim.experiment import Experiment
    from aquila.tasks.partition import Partition


def write_run_file(
    folder: Path, experiment: Experiment, spec: MethodSpec, parts: Partition
) -> None:
    """Write the method, setting, split and environment of a run to its folder."""
    from aquila.tasks.partition import save_partition

    content = {
        "method": spec.label,
        "parameters": spec.all_parameters(experiment),
        **experiment.setting.to_dict(),
        **_environment(experiment.setting),
    }
    (folder / RUN_FILE).write_text(json.dumps(content, indent=2) + "\n")
    save_partition(folder / SPLIT_FILE, parts)


def tracker_parameters(experiment: Experiment, spec: MethodSpec) -> dict[str, object]:
    """Return the method, setting and environment of a run as one flat mapping."""
    return {
        "method": spec.label,
        **{f"method.{name}": value for name, value in spec.all_parameters(experiment).items()},
        **experiment.setting.to_dict(),
        **_environment(experiment.setting),
    }


def _environment(setting: Setting) -> dict[str, object]:
    import torch

    return {
        "aquila": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "gpu": torch.cuda.get_device_name() if setting.device == "cuda" else "none",
    }
