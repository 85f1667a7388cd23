"""The limit of a Shim's rollout, and its distance from the ideal time: ``python bench/rollout.py``.

Starts a control plane on this machine with simulated nodes whose installers run for a fixed time (``--seconds``, the
duration on a real node), and rolls out a Shim to all of them, ``--max-update`` at a time: the first version, then a
second one. All figures come from the audit log of the API server.

A node is in progress from the creation of its Job until the result is written on the Node. The ideal time is the
number of waves (nodes ÷ slots, rounded up) × the time of one Job from its creation to the label without other work,
the median of five nodes that were changed one by one before. The measured time is from the write of the Shim to the
label of the last node. Exit status 1: more nodes in progress than the limit, or more than 1.2 × the ideal time.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from machine import describe
from provision import free_port, http_ready, is_ours, most_in_progress, process, records, size, trellis
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis_dev.definitions import define_kinds
from trellis_dev.localcluster import ClusterInfo, owned_cluster
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.progress import Quiet

ALONE = 5
LIMIT = 1.2
HANDLER = "spin"
SHIMS = "/apis/runtime.spinkube.dev/v1alpha1/shims"
JOBS = "/apis/batch/v1/namespaces/trellis-installers/jobs"
INSTALLER = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {{name: installer}}
spec:
  resourceRef: {{apiGroup: v1, kind: Pod}}
  selector:
    matchExpressions:
    - {{key: .metadata.deletionTimestamp, operator: DoesNotExist}}
    - {{key: .status.phase, operator: In, values: [Running]}}
    - {{key: '.metadata.ownerReferences.[].kind', operator: In, values: [Job]}}
  weight: 1
  delay: {{durationMilliseconds: {milliseconds}}}
  next:
    statusTemplate: |
      phase: Succeeded
"""


@dataclass(frozen=True)
class Rollout:
    """One rollout by the audit log. Times in seconds.

    ``jobs``: from creation to label, by node; ``labels``: of that, from the end of the Job on, of Trellis alone.
    """

    took: float
    jobs: dict[str, float]
    labels: dict[str, float]
    most: int
    writes: int


def labelled(api: Api, nodes: Iterable[str], value: str) -> None:
    """Give nodes the label that a Shim selects on, and a kubelet's word that they have its handler."""
    handlers = {"status": {"runtimeHandlers": [{"name": "runc"}, {"name": HANDLER}]}}
    for node in nodes:
        for path, patch in (("/status", handlers), ("", {"metadata": {"labels": {"bench": value}}})):
            status, answer = api.call("PATCH", f"/api/v1/nodes/{node}{path}", patch)
            assert status < 300, answer


def apply(api: Api, name: str, version: int, max_update: int | str) -> None:
    """Create a Shim of a version, or change it to that version."""
    source = {"location": "https://example.com/spin.tar.gz", "sha256": f"{version:064x}"}
    spec = {
        "nodeSelector": {"bench": name},
        "fetchStrategy": {"anonHttp": source},
        "runtimeClass": {"name": name, "handler": HANDLER},
        "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": max_update}},
        "verify": {"canary": False},
    }
    shim = {"apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim", "metadata": {"name": name}, "spec": spec}
    status, answer = (
        api.call("POST", SHIMS, shim) if version == 1 else api.call("PATCH", f"{SHIMS}/{name}", {"spec": spec})
    )
    assert status < 300, answer


def wait(check: Callable[[], bool], what: str, seconds: float = 1800) -> None:
    """Look once a second whether something holds.

    Raises:
        SystemExit: it does not in time.
    """
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds:.0f} s: {what}")
        time.sleep(1)


def done(api: Api, name: str, nodes: int) -> bool:
    """Return whether all nodes have the version of the spec, by the status of the Shim."""
    shim = api.call("GET", f"{SHIMS}/{name}")[1]
    status = shim.get("status") or {}
    current = status.get("observedGeneration") == shim["metadata"]["generation"]
    return current and status.get("nodesUpdated") == nodes


def no_jobs(api: Api) -> bool:
    """Return whether all installer Jobs are deleted."""
    return not api.call("GET", f"{JOBS}?limit=1")[1]["items"]


def at(record: dict[str, Any], moment: str = "stageTimestamp") -> float:
    """Return when the API server got a request, or answered it, in Unix seconds."""
    return datetime.fromisoformat(record[moment]).timestamp()


def read(history: list[dict[str, Any]]) -> Rollout:
    """Read one rollout from the audit log: it begins with the first write to the Shim by another client."""
    accepted = [record for record in history if record["responseStatus"]["code"] < 300]
    begin = next(at(r) for r in accepted if r["objectRef"]["resource"] == "shims" and not is_ours(r))
    created: dict[str, float] = {}
    ended: dict[str, float] = {}
    labelled: dict[str, float] = {}
    for record in accepted:
        reference, verb = record["objectRef"], record["verb"]
        node = reference.get("name", "").rsplit("-", 3)[0]
        if reference["resource"] == "jobs" and reference.get("subresource") == "status" and node not in labelled:
            ended[node] = at(record)
        elif not is_ours(record):
            continue
        elif reference["resource"] == "jobs" and verb == "create":
            created[node] = at(record, "requestReceivedTimestamp")
        elif reference["resource"] == "nodes" and verb == "patch" and reference["name"] in created:
            labelled.setdefault(reference["name"], at(record))
    assert labelled.keys() == created.keys(), f"{len(created) - len(labelled)} Jobs led to no label"
    return Rollout(
        took=max(labelled.values()) - begin,
        jobs={node: labelled[node] - started for node, started in created.items()},
        labels={node: labelled[node] - ended[node] for node in created},
        most=most_in_progress(history),
        writes=sum(map(is_ours, history)),
    )


def report(title: str, rollout: Rollout, ideal: float, limit: int) -> bool:
    """Print one rollout; return whether it kept to its limit and to 1.2 × the ideal time."""
    times = sorted(rollout.jobs.values())
    ratio = rollout.took / ideal
    print(title)
    print(f"  nodes                          {len(times):8d}")
    print(f"  most in progress at a time         {rollout.most:8d}   of {limit} allowed")
    print(f"  one Job, to the label, median  {statistics.median(times):8.2f} s   longest {times[-1]:.2f} s")
    idle = (limit * rollout.took - sum(times)) / len(times)
    print(f"  of it, from the Job's end on   {statistics.median(rollout.labels.values()):8.2f} s   median")
    print(f"  a slot between two Jobs, mean  {idle:8.2f} s   waiting for the last ones included")
    print(f"  writes by Trellis              {rollout.writes:8d}   {rollout.writes / len(times):.1f} a node")
    print(f"  ideal                          {ideal:8.2f} s")
    print(f"  all nodes labelled after       {rollout.took:8.2f} s   {ratio:.3f} x the ideal", flush=True)
    return rollout.most <= limit and ratio <= LIMIT


def measure(options: argparse.Namespace) -> bool:
    """Roll out on a cluster of its own; return whether all limits were kept."""
    total, slots = options.nodes, CountOrPercent.parse(options.max_update).resolve(options.nodes)
    stage = INSTALLER.format(milliseconds=round(options.seconds * 1000))
    with owned_cluster(nodes=total + ALONE, audit=True, kwok_stages=[stage]) as info:
        define_kinds(info, Quiet())
        api, port = Api.of_kubeconfig(Path(info.kubeconfig)), free_port()
        nodes = [f"node-{index:04d}" for index in range(total + ALONE)]
        labelled(api, nodes[:ALONE], "alone")
        labelled(api, nodes[ALONE:], "rolling")
        with process(*trellis(info, port, "1")):
            asyncio.run(http_ready(port))
            item = statistics.median(rolled(api, info, ("alone", 1, 1), ALONE).jobs.values())
            waves = math.ceil(total / slots)
            print(f"one Job alone, from its creation to the label, median of {ALONE}: {item:.2f} s")
            print(f"ideal: {waves} waves x {item:.2f} s = {waves * item:.2f} s", flush=True)
            kept = True
            for version, title in ((1, "first installation"), (2, "second version")):
                rollout = rolled(api, info, ("rolling", version, options.max_update), total)
                kept &= report(f"{title}, maxUpdate {options.max_update}", rollout, waves * item, slots)
    return kept


def rolled(api: Api, info: ClusterInfo, shim: tuple[str, int, int | str], nodes: int) -> Rollout:
    """Apply a version of a Shim and return its rollout, once all is done and cleared away."""
    assert info.audit_log is not None
    audit = Path(info.audit_log)
    offset = size(audit)
    apply(api, *shim)
    wait(lambda: done(api, shim[0], nodes), f"all nodes have version {shim[1]} of Shim {shim[0]}")
    wait(lambda: no_jobs(api), "the Jobs are cleared away")
    return read(records(audit, offset))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000, help="simulated nodes (1000)")
    parser.add_argument("--max-update", default="10%", help="nodes in progress at a time, number or percentage (10%%)")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long an installer takes (8)")
    options = parser.parse_args()
    print(f"machine: {describe()}\na Shim on {options.nodes} simulated nodes, installers of {options.seconds:g} s")
    kept = measure(options)
    print(f"limits: never more in progress than allowed, {LIMIT} x the ideal: {'kept' if kept else 'NOT KEPT'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
