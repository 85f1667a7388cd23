"""The memory of a default installation on three real nodes: ``python bench/installation.py``.

In: nothing; it starts three real nodes on this machine (root, Linux), makes the images of this checkout and installs
the chart by Helm, first as it is by default, then in one process (``mode: bundle``). Out: for each mode the resident
memory of every container after a minute with nothing to do, on stdout with the machine; exit status 1 if a target is
missed. ``resident`` counts pages that several processes map for each of them; ``own`` divides them, as a node does
that has them once.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import psutil

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from machine import describe
from support.chart.chart_cluster import ChartCluster, chart_cluster
from support.chart.rendered import SYSTEM
from trellis_dev.localcluster import requirements

QUIET_SECONDS: Final = 60.0
MIB: Final = 2**20
MODES: Final[dict[str, tuple[dict[str, Any], float]]] = {
    "services": ({}, 1024.0),
    "bundle": ({"mode": "bundle", "bundle": {"replicas": 2}}, 400.0),
}
"""Values beside the defaults, and MiB that are allowed."""


def main() -> int:
    """Measure both modes."""
    if (reason := requirements.missing()) is not None:
        print(f"NOT RUN: {reason}", file=sys.stderr)
        return 2
    good = True
    with tempfile.TemporaryDirectory() as folder, chart_cluster(Path(folder)) as cluster:
        print(describe(), flush=True)
        for mode, (values, allowed) in MODES.items():
            cluster.prepare()
            cluster.install(console=False, **values)
            time.sleep(QUIET_SECONDS)
            good &= show(mode, cluster, allowed)
            cluster.uninstall()
            cluster.clean()
    return 0 if good else 1


def show(mode: str, cluster: ChartCluster, allowed: float) -> bool:
    """Print what the pods of an installation hold; return whether that is allowed."""
    pods = {item["metadata"]["uid"]: item["metadata"]["name"] for item in cluster.listed("pods", "-n", SYSTEM)}
    resident: dict[str, float] = defaultdict(float)
    own: dict[str, float] = defaultdict(float)
    for process in psutil.process_iter():
        try:
            pod = next((name for uid, name in pods.items() if uid in cgroups_of(process.pid)), None)
            if pod is not None and process.name() != "pause":
                resident[pod] += process.memory_info().rss / MIB
                own[pod] += rollup(process.pid, "Pss") / 1024
        except (psutil.NoSuchProcess, OSError):
            continue
    for pod in sorted(resident):
        print(f"  {pod:<50} {resident[pod]:6.1f} MiB resident, {own[pod]:6.1f} MiB own")
    total = sum(resident.values())
    print(
        f"{mode}: {len(resident)} of {len(pods)} pods, {total:.0f} MiB resident, {sum(own.values()):.0f} MiB own, "
        f"allowed {allowed:.0f}{'' if total <= allowed else '  MISSED'}",
        flush=True,
    )
    return total <= allowed and len(resident) == len(pods)


def cgroups_of(pid: int) -> str:
    """Return the control groups of a process, as the kernel names them; systemd's names have ``_`` for ``-``."""
    return Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").replace("_", "-")


def rollup(pid: int, field: str) -> float:
    """Return a field of ``smaps_rollup``, in KiB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return float(line.split()[1])
    return 0.0


if __name__ == "__main__":
    sys.exit(main())
