"""The type of options and arguments that are paths."""

from __future__ import annotations

import os
from typing import Any

import click


class NamedPath(click.Path):
    """A path that is not empty. An empty one would silently mean the current folder."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """Return the path, or fail with one sentence."""
        if value == "":
            self.fail("the path is empty; the current folder is '.'", param, ctx)
        return super().convert(value, param, ctx)
