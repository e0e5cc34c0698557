"""What a command says beside its output."""

import click


def warn_broken_run(reason: object) -> None:
    """Say on stderr why a run is left out."""
    click.echo(f"Warning: a run is left out: {reason}", err=True)
