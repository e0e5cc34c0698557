"""The version of the package, kept apart so that reading it imports nothing."""

__version__ = "0.2.0"
