"""The command line, one file per subcommand. Commands import heavy packages when they run."""

import os
from typing import Any

import click

from aquila.cli.advise import advise
from aquila.cli.archive import archive
from aquila.cli.checkpoints import checkpoints
from aquila.cli.compare import compare
from aquila.cli.data import data
from aquila.cli.deploy import deploy
from aquila.cli.experiments import experiments
from aquila.cli.export import export
from aquila.cli.figures import figures
from aquila.cli.frame import frame
from aquila.cli.methods import methods
from aquila.cli.report import report
from aquila.cli.run import run
from aquila.cli.table import table
from aquila.version import __version__

# torch reads this variable once, when it is imported, and then puts vectors into huge pages
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

INTERRUPTED = 130
"""Exit status of a command stopped by Ctrl-C, as in shells."""


class PlainErrors(click.Group):
    """A group whose commands report an error in one sentence, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (ValueError, ArithmeticError, OSError) as error:
            raise click.ClickException(_sentence(error)) from error
        except KeyboardInterrupt:
            click.echo("\nStopped. A run with --out can be continued with --resume.", err=True)
            ctx.exit(INTERRUPTED)


def _sentence(error: Exception) -> str:
    """Return the message of an error, without the number of a system error."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


@click.group(cls=PlainErrors, context_settings=CONTEXT_SETTINGS)
@click.version_option(__version__, prog_name="aquila")
def main() -> None:
    """Communication-efficient federated learning, measured in real bytes."""


COMMANDS = (
    advise, compare, run, export, report, table, figures, archive, checkpoints, methods,
    experiments, data, frame, deploy,
)  # fmt: skip
for command in COMMANDS:
    main.add_command(command)
