"""Data sets, models and partitions for federated training."""

from aquila.tasks.models import build_model as build_model
