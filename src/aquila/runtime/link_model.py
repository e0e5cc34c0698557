"""The links of all devices of a run. Importing this module does not import torch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from aquila.core.link import DeviceLink
from aquila.core.parameter import spelling_hint
from aquila.runtime.link_presets import PRESET_NAMES

TRACE_PREFIX = "csv:"


@dataclass(frozen=True)
class LinkModel:
    """The links of a fleet.

    Args:
        rounds: Per round one link per device. After the last round, the first one follows again.
            `LinkModel.constant` makes a model whose links are the same in all rounds.
        name: How reports name the model.
    """

    rounds: tuple[tuple[DeviceLink, ...], ...]
    name: str = "own"

    def __post_init__(self) -> None:
        counts = {len(links) for links in self.rounds}
        if len(counts) != 1 or 0 in counts:
            raise ValueError("a link model needs the links of the same devices in every round")
        for links in self.rounds:
            for link in links:
                if not isinstance(link, DeviceLink):
                    raise TypeError(f"a link must be an aquila.DeviceLink(...), not {link!r}")

    @classmethod
    def constant(cls, links: Sequence[DeviceLink], name: str = "own") -> LinkModel:
        """Return a model in which device number n always has link number n."""
        return cls((tuple(links),), name)

    @property
    def devices(self) -> int:
        """The number of devices."""
        return len(self.rounds[0])

    def links(self, round_number: int) -> tuple[DeviceLink, ...]:
        """Return the links of a round, one per device."""
        return self.rounds[round_number % len(self.rounds)]

    @property
    def digest(self) -> str:
        """A text that differs between models with different numbers."""
        return hashlib.sha256(repr(self.rounds).encode()).hexdigest()[:16]


LinkChoice = str | LinkModel
"""The option `link` of a run."""


def check_link(link: object) -> None:
    """Raise ValueError unless the object can be the option `link` of a run."""
    if isinstance(link, LinkModel) or link == "":
        return
    if not isinstance(link, str):
        raise ValueError(f"link must be text or an aquila.LinkModel, not {link!r}")
    if link.startswith(TRACE_PREFIX):
        if link == TRACE_PREFIX:
            raise ValueError("link csv: needs the path of a trace, such as csv:trace.csv")
    elif link not in PRESET_NAMES:
        hint = spelling_hint(link, (*PRESET_NAMES, "csv:FILE"))
        raise ValueError(f"link must be a preset, csv:FILE or empty, not {link!r}{hint}")


def link_name(link: LinkChoice) -> str:
    """Return the option as text."""
    return link if isinstance(link, str) else f"{link.name} ({link.digest})"
