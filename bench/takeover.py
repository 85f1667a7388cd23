"""The time without a leader after one ends: ``python bench/takeover.py [--rounds N]``.

In: nothing; it starts a control plane of its own. Out: figures and the machine they were measured on, on stdout.
A round: two replicas of a service in processes of their own (the runtime of every service: lease, bus, watch, keyed
queue), one working, one standing by. The first gets SIGTERM (it gives the lease back) or SIGKILL (the lease has to
expire). Measured from the signal to the answers of the API server, by its audit log: to the other's lease, and to the
other's first write. Design section 3.7 allows 2 s after a release and 13 s after a crash.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from machine import describe
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster import ClusterInfo, owned_cluster

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from support.cluster.exclusion import accepted, place, writer
from support.cluster.pair import Pair

PACE = 0.02
RENEWAL_SECONDS = 2.0
TARGETS = {"release": 2.0, "crash": 13.0}


async def one_round(pair: Pair, how: str) -> tuple[float, float]:
    """Return the seconds until the other holds the lease, and until its first write is accepted."""
    await pair.begin()
    await pair.lead_and_follow(first={"pace": PACE}, second={"pace": PACE})
    # Anywhere between two renewals, as any signal comes.
    await asyncio.sleep(random.uniform(0, RENEWAL_SECONDS))
    began = time.time()
    await (pair.terminate("first") if how == "release" else pair.kill("first"))
    await pair.worked("second")
    await pair.end()
    assert pair.violations() == []
    return first_write(pair, "leases") - began, first_write(pair, "configmaps") - began


def first_write(pair: Pair, resource: str) -> float:
    """Return when the API server had carried out the second replica's first write of a kind, in Unix seconds."""
    for record in pair.audited():
        if writer(record, pair.lease.product) == "second" and accepted(record) and place(record)[0] == resource:
            return datetime.fromisoformat(record["stageTimestamp"]).timestamp()
    raise AssertionError(f"no write of {resource} by the second replica")


async def measure(info: ClusterInfo, rounds: int, directory: Path) -> None:
    kube = await Kube.connect(Access(Path(info.kubeconfig)), telemetry=setup("bench"), health=Health("bench"))
    print(f"{'seconds from the signal':<36} {'p50':>7} {'max':>7} {'allowed':>8}")
    for how, allowed in TARGETS.items():
        leases, writes = [], []
        for number in range(rounds):
            here = directory / f"{how}-{number}"
            here.mkdir()
            lease, write = await one_round(Pair(info, kube, here.name, here), how)
            leases.append(lease)
            writes.append(write)
        print(f"{how}, to the other's lease".ljust(36), f"{statistics.median(leases):>7.2f} {max(leases):>7.2f}")
        print(
            f"{how}, to the other's first write".ljust(36),
            f"{statistics.median(writes):>7.2f} {max(writes):>7.2f} {allowed:>8.1f}",
        )
    await kube.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each kind (default: 10)")
    arguments = parser.parse_args()
    print(describe())
    print(f"{arguments.rounds} rounds of each kind")
    with tempfile.TemporaryDirectory() as directory, owned_cluster(audit=True) as info:
        asyncio.run(measure(info, arguments.rounds, Path(directory)))


if __name__ == "__main__":
    main()
