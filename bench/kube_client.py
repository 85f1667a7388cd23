"""Measures the planted package of ``trellis.kube.client_package``: ``python bench/kube_client.py [--rounds N]``.

In: nothing; each round starts two processes that import ``trellis.kube.client``, one after an import of all of
``kubernetes``. Out: the medians of resident memory, modules and processor time of both, on stdout with the machine.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from typing import Final

from machine import describe

PROGRAM: Final = """
import sys, time
{first}import trellis.kube.client
resident = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS"))
print(resident, len(sys.modules), time.process_time())
"""
VARIANTS: Final = {"planted": "", "whole package": "import kubernetes\n"}


def measured(first: str) -> tuple[float, float, float]:
    """Return MiB of resident memory, modules, and seconds of processor time of a process that imports the client."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM.format(first=first)], check=True, stdout=subprocess.PIPE)
    resident, modules, seconds = ended.stdout.split()
    return int(resident) / 1024, int(modules), float(seconds)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    print(describe())
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in VARIANTS}
    for _ in range(rounds):
        for name, first in VARIANTS.items():
            found[name].append(measured(first))
    for name, rows in found.items():
        resident, modules, seconds = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{name:14} {resident:6.1f} MiB {modules:6.0f} modules {seconds:6.2f} s of processor time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
