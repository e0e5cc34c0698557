"""Data sets, models and partitions to train on."""
