"""Warnings about runs that cannot be read."""

import click


def warn_broken_run(reason: object) -> None:
    """Print to stderr why a run is skipped."""
    click.echo(f"Warning: skipped a run: {reason}", err=True)
