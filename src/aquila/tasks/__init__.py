"""Data sets, models and partitions to train on."""

from aquila.tasks.models import build_model as build_model
