"""A command whose help lists its many options in sections."""

from __future__ import annotations

import click

from aquila.runtime.options import LINK_OPTIONS, PROTECTION, RECIPE, option_parameters
from aquila.training.local_training import training_parameters

HARDWARE = (
    "device", "precision", "compile_model", "deterministic", "executor", "workers", "state_memory",
)  # fmt: skip
DATA_AND_MODEL = (
    "data", "data_folder", "samples", "test_samples", "model", "init_from", "widths", "devices",
    "split", "mask_classes", "augment", "rounds", "seed",
)  # fmt: skip
LOCAL_TRAINING = ("alpha", "work", "batch_size", "epochs", *training_parameters())
BAD_DEVICES = ("on_nan", *PROTECTION)
SERVER = tuple(n for n in RECIPE if n not in ("selection", "candidates", *BAD_DEVICES))
SECTIONS = {
    "Data, model and length of the run": DATA_AND_MODEL,
    "Local training": LOCAL_TRAINING,
    "Server and weights": SERVER,
    "Participation, losses, evaluation and stopping": tuple(
        name
        for name in option_parameters()
        if name not in (*SERVER, *BAD_DEVICES, *LINK_OPTIONS, *HARDWARE)
    ),
    "Bad devices and privacy": BAD_DEVICES,
    "Simulated network": LINK_OPTIONS,
    "Hardware": HARDWARE,
}
"""Parameter names of the options in each section. Other options come first."""


class CommandWithSections(click.Command):
    """A command whose help begins with its own options, and then lists settings in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the help text."""
        named = {name for names in SECTIONS.values() for name in names}
        entries = {
            parameter.name: entry
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option) and (entry := parameter.get_help_record(ctx))
        }
        first = [entry for name, entry in entries.items() if name not in named]
        with formatter.section("Options"):
            formatter.write_dl(first)
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([entries[name] for name in names if name in entries])
