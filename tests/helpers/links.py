"""Fleets whose devices have given links."""

from collections.abc import Sequence

import torch

import aquila
from aquila.core.link import LinkState


def link_state(rate: float, *, snr_db: float = 10.0, **link: float) -> LinkState:
    """Return a link without delays whose mean rates are those of the round."""
    means = aquila.DeviceLink(uplink_rate=rate, downlink_rate=1e6, snr_db=snr_db, **link)
    return LinkState(means, True, rate, 1e6, 0.0, 0.0, 1.0)


def linked_fleet(states: Sequence[LinkState], dimension: int = 100, narrow: int = 0):
    """Return a fleet with these links. The last `narrow` devices hold half of the model."""
    groups = [0] * (len(states) - narrow) + [1] * narrow
    fleet = aquila.Fleet(dimension, groups, [None, torch.arange(dimension // 2)])
    return fleet.with_links(dict(enumerate(states)))
