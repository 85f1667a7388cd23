"""Reads the snapshot for a plan of all nodes. It changes nothing.

In: ``cache``, and the ledger, which is not watched. Out: frozen fleet snapshots for ``plan``. Called by ``planner``;
``rollout_pods`` reads the pods. ``shim_gather`` reads the ledger, too.
"""

from __future__ import annotations

import math
import time

from provisioner.cache import Cache
from provisioner.domain.decide import labelled
from provisioner.domain.plan import FleetSnapshot
from provisioner.domain.pod_readiness import Workloads
from provisioner.domain.resources import Manifest
from provisioner.domain.unconfirmed import with_unconfirmed
from trellis import names
from trellis.crds.shim import WorkloadPolicy
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.resources import CONFIGMAPS
from trellis.provisioning.ledger import Ledger
from trellis.provisioning.views import KWASM


async def ledger_manifest(kube: Kube, namespace: str) -> Manifest | None:
    """Return the ledger as the API server has it, None if there is none."""
    try:
        return await kube.get(CONFIGMAPS, names.LEDGER, namespace)
    except NotFound:
        return None


def workload_classes(cache: Cache) -> frozenset[str]:
    """Return the RuntimeClasses whose pods the next plan depends on: of Shims that change on nodes with them."""
    recorded = cache.ledger.workloads if cache.ledger is not None else {}
    limits = cache.settings.limits(cache.shims.values())
    found = {name for name, item in limits.items() if item.workloads is not WorkloadPolicy.IGNORE}
    changing = {name for node in cache.fleet.restless() for name in node.installed} if found else set()
    return frozenset(limits[name].runtime_class for name in found if name in recorded or name in changing)


def fleet_snapshot(cache: Cache, now: float, workloads: Workloads) -> FleetSnapshot:
    """Return the input of a plan. ``now``: Unix seconds; ``workloads``: the pods of ``workload_classes``.

    It contains only nodes with work to do or in progress; all further nodes are counted.
    """
    settings, ledger = cache.settings, cache.ledger or Ledger({})
    jobs, requested, unconfirmed = cache.jobs.by_uid(), cache.in_progress(), dict[str, frozenset[str]]()
    targets, resting = cache.fleet.look_at({**jobs, **ledger.entries, **requested})
    for index, (node, _) in enumerate(targets):
        if shims := cache.unconfirmed(node, ledger.entries.get(node.uid)):
            unconfirmed[node.uid], view = shims, with_unconfirmed(node, shims)
            targets[index] = view, cache.fleet.target(view)
    left = {job.uid: cache.clock.left(job) for of_node in jobs.values() for job in of_node}
    named = () if cache.shims_known() else {name for entry in ledger.entries.values() for name in entry.shims}
    return FleetSnapshot(
        nodes=tuple(node for node, _ in targets),
        targets={node.uid: target for node, target in targets if target is not None},
        resting=resting,
        jobs=jobs,
        ledger=ledger,
        limits=settings.limits(cache.shims.values()),
        retries=settings.retries(),
        blocked=cache.blocked_nodes(),
        settles_in=max(0.0, cache.debounce_until - time.monotonic()),
        blocked_retry=cache.timings.blocked,
        other_controller=frozenset(
            node.uid
            for node, target in targets
            if target and (labelled(node, target) or cache.blocking_controller(node, target))
        ),
        now=now,
        in_progress=requested,
        unconfirmed=unconfirmed,
        stuck=frozenset(uid for uid, seconds in left.items() if seconds <= 0),
        stuck_in=min((seconds for seconds in left.values() if 0 < seconds < math.inf), default=None),
        shims_unknown=cache.shim_references.unknown or any(name != KWASM for name in named),
        workloads=workloads,
    )
