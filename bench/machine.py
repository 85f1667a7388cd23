"""Describes the machine of a measurement."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil


def describe() -> str:
    """Return one line: processor, cores, memory, kernel, Python, load before the run."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )
