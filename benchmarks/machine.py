"""Describes the machine of a measurement."""

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def cpu_name():
    """Return the model name of the processor, or its architecture if the name is unknown."""
    lines = CPUINFO.read_text().splitlines() if CPUINFO.is_file() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
