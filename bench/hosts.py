"""The time from host groups to Deployments: ``python bench/hosts.py [--groups N]``.

In: nothing; it starts a control plane of its own, with host_manager in a process of its own. Out: figures and the
machine they were measured on, on stdout; exit status 1 if a target is missed. Groups have no replicas: what is measured
is the control plane's way, from the request that creates a group to the Deployment that another client reads. Measured
are single groups one after another, many at once, the memory that those take, and what is written in a time in which
nothing changes, by the audit log of the API server.
"""

from __future__ import annotations

import argparse
import http
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import psutil

from machine import describe
from provision import process
from trellis.crds.kinds import KINDS, make_definition
from trellis.kube.resources import DEFINITIONS, DEPLOYMENTS, HOST_CONFIGS
from trellis_dev.localcluster import ClusterInfo, owned_cluster
from trellis_dev.localcluster.api import Api

NAMESPACE = "default"
SINGLE = 30
PAUSE = 0.2
COUNT_PAUSE = 0.05
LIST_PAUSE = 0.5
QUIET_SECONDS = 20.0
TARGET_P50 = 0.1
TARGET_MANY = 10.0
TARGET_MIB = 10.0


def wait(check: Callable[[], bool], what: str, seconds: float = 300, pause: float = 0.005) -> None:
    """Poll until the check holds."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(pause)


def create(api: Api, name: str) -> None:
    manifest = {
        "apiVersion": HOST_CONFIGS.api_version,
        "kind": HOST_CONFIGS.kind,
        "metadata": {"name": name},
        "spec": {"lattice": "default", "version": "1.9.2", "hostReplicas": 0},
    }
    status, answer = api.call("POST", HOST_CONFIGS.path(NAMESPACE), manifest)
    assert status == http.HTTPStatus.CREATED, answer


def exists(api: Api, name: str) -> bool:
    return api.call("GET", DEPLOYMENTS.path(NAMESPACE, name))[0] == http.HTTPStatus.OK


def listed(api: Api, path: str) -> list[dict[str, Any]]:
    return list(api.call("GET", path)[1].get("items") or [])


def deployments(api: Api) -> int:
    """Return their number. The list has a limit of one: full lists would be a large part of the load."""
    found = api.call("GET", f"{DEPLOYMENTS.path(NAMESPACE)}?limit=1")[1]
    return len(found.get("items") or []) + int(found["metadata"].get("remainingItemCount") or 0)


def settled(api: Api) -> int:
    """Return how many groups report that they are ready."""
    conditions = [
        {condition["type"]: condition["status"] for condition in (group.get("status") or {}).get("conditions") or ()}
        for group in listed(api, HOST_CONFIGS.path(NAMESPACE))
    ]
    return sum(
        (condition.get("Available"), condition.get("Progressing")) == ("True", "False") for condition in conditions
    )


def one_by_one(api: Api) -> list[float]:
    """Return the seconds from each request to its Deployment."""
    took = []
    for number in range(SINGLE):
        name = f"single-{number}"
        started = time.monotonic()
        create(api, name)
        wait(lambda name=name: exists(api, name), name)  # type: ignore[misc]
        took.append(time.monotonic() - started)
        time.sleep(PAUSE)
    return took


def written(info: ClusterInfo, since: int) -> Counter[str]:
    """Return what host_manager wrote since a place in the audit log, by resource."""
    assert info.audit_log is not None
    with Path(info.audit_log).open("rb") as log:
        log.seek(since)
        records = [orjson.loads(line) for line in log if line.endswith(b"\n")]
    return Counter(
        str(record["objectRef"]["resource"])
        for record in records
        if "trellis-host-manager" in str(record.get("userAgent", ""))
    )


def measure(info: ClusterInfo, api: Api, process: psutil.Process, groups: int) -> bool:
    took = sorted(one_by_one(api))
    p50, p90 = statistics.median(took), took[int(len(took) * 0.9)]
    print(f"create -> Deployment, one at a time: p50 {p50 * 1000:.0f} ms, p90 {p90 * 1000:.0f} ms, {SINGLE} groups")
    wait(lambda: settled(api) == SINGLE, "they are settled", pause=LIST_PAUSE)
    before = process.memory_info().rss

    started = time.monotonic()
    for number in range(groups):
        create(api, f"many-{number}")
    created = time.monotonic() - started
    wait(lambda: deployments(api) >= SINGLE + groups, "all Deployments", pause=COUNT_PAUSE)
    many = time.monotonic() - started
    print(f"{groups} groups at once: requests {created:.1f} s, all Deployments after {many:.1f} s")
    wait(lambda: settled(api) == SINGLE + groups, "they are settled", pause=LIST_PAUSE)
    grown = (process.memory_info().rss - before) / 2**20
    print(f"all settled after {time.monotonic() - started:.1f} s; memory + {grown:.1f} MiB")

    assert info.audit_log is not None
    time.sleep(PAUSE * 10)  # what was said last is written
    offset = Path(info.audit_log).stat().st_size
    time.sleep(QUIET_SECONDS)
    quiet = written(info, offset)
    print(f"written in {QUIET_SECONDS:.0f} s in which nothing changed, each group evaluated twice: {dict(quiet)}")
    return p50 <= TARGET_P50 and many <= TARGET_MANY and grown <= TARGET_MIB and set(quiet) <= {"leases"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=200)
    options = parser.parse_args()
    print(f"machine: {describe()}")
    with owned_cluster(audit=True) as info:
        api = Api.of_kubeconfig(Path(info.kubeconfig))
        for kind in KINDS:
            api.call("POST", DEFINITIONS.path(), make_definition(kind))
        wait(lambda: api.ok(HOST_CONFIGS.path(NAMESPACE)), "the kind is served")
        environment = {
            "TRELLIS_KUBECONFIG": str(info.kubeconfig),
            "TRELLIS_NATS_URL": info.nats_url,
            "TRELLIS_HEALTH_PORT": "0",
            "TRELLIS_SOURCES_INTERVAL": str(QUIET_SECONDS / 2),
        }
        with process([sys.executable, "-m", "host_manager"], environment) as running:
            create(api, "first")
            wait(lambda: exists(api, "first"), "the service works")
            api.call("DELETE", HOST_CONFIGS.path(NAMESPACE, "first"))
            wait(lambda: not exists(api, "first"), "the first group is gone")
            good = measure(info, api, running, options.groups)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
