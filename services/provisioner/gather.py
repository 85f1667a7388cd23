"""Reads the snapshot for a decision about one node. It changes nothing.

In: ``cache``, and reads of unwatched objects: pods of installers and users of Shims, former versions. Out: frozen
snapshots for ``decide``. Called by ``reconciler``; ``rollout_gather`` has the snapshots of plans.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from provisioner.cache import Cache
from provisioner.domain.actions import Snapshot
from provisioner.domain.canary import Canary, CanaryPod, canary_of
from provisioner.domain.decide import inspect, to_begin, unserved
from provisioner.domain.job_clock import at_work
from provisioner.domain.resources import Task
from provisioner.domain.tasks import Former, Rules, had_of, kept_version, task_of, to_remove
from provisioner.domain.unconfirmed import with_unconfirmed
from provisioner.domain.verification import in_vain
from provisioner.pods import Pods
from trellis.installer_api.spec import WantedShim
from trellis.kube.client import Kube
from trellis.kube.resources import CONTROLLER_REVISIONS, SHIMS
from trellis.provisioning.attempts import acknowledges
from trellis.provisioning.drain import drained_on
from trellis.provisioning.ledger import Entry, target_of_slot
from trellis.provisioning.leftovers import fulfilled
from trellis.provisioning.revisions import label_selector, revisions_of
from trellis.provisioning.views import JobView, NodeView, Target, newest, verification_of


@dataclass(frozen=True, slots=True)
class Gather:
    """Reader of the input of decisions. It changes nothing."""

    kube: Kube
    cache: Cache

    async def snapshot(self, name: str) -> Snapshot:
        """Return the input of a decision about one node; read the pod of its installer if that is relevant."""
        cache, pods, now = self.cache, Pods(self.kube), self.kube.now()
        settings, node, jobs = cache.settings, cache.nodes.get(name), cache.jobs.of_name(name)
        job = _newest_of(node, jobs)
        installer = None
        if job is not None and inspect(job, inspect_after=settings.inspect_after, now=now):
            installer = await pods.installer(job)
        entry = cache.ledger.entries.get(node.uid) if node and cache.ledger else None
        unconfirmed = cache.unconfirmed(node, entry) if node else frozenset[str]()
        if node and unconfirmed:
            node = with_unconfirmed(node, unconfirmed)
        target = target_of_slot(node, cache.fleet.target(node), entry) if node else None
        deleting = to_remove(node, target) if node and target and entry else ()
        begins = node is not None and entry is not None and to_begin(node, jobs, entry)
        left = begins and cache.may_have_pods(name)
        draining = self._drained(node, entry, target) if node and target and begins else frozenset()
        timeout = self._verify_timeout(job)
        done_for = cache.clock.done_for(job) if job is not None else 0.0
        noted = cache.noted(node.uid if node is not None else "")
        return Snapshot(
            name=name,
            node=node,
            jobs=jobs,
            entry=entry,
            target=target,
            published=cache.published(jobs),
            installer=installer,
            verify_timeout=timeout,
            inspect_after=settings.inspect_after,
            now=now,
            done_for=done_for,
            unconfirmed=unconfirmed,
            stuck_in=cache.clock.left(job) if job is not None and at_work(job) else math.inf,
            pod_refused=cache.pod_refusals.reason_of(job.uid) if job is not None else "",
            pod_refused_for=cache.pod_refusals.seconds(job.uid) if job is not None else 0.0,
            refusal_retry=cache.timings.refusals.bound(len(cache.refused.by_uid)),
            update_refused=await self._update_refused(node, job, done_for),
            refused=cache.refused.message_of(node.uid) if node is not None else "",
            task=self._task(node, target, now) if begins and node and target else None,
            blocked_for=max(0.0, noted.blocked_until - time.monotonic()),
            pods_left=await pods.at_work(settings.installer_namespace, name) if left else (),
            report_skip=node is not None and node.skip is not None and noted.reported_skip != node.skip,
            canaries=self._canaries(job, target),
            pods=await self._pods(job, explain=done_for >= timeout),
            unserved=node is not None and self._unserved(node),
            users=await pods.users(name, (*deleting, *draining), cache.shims) if deleting or draining else (),
            draining=draining,
            drain_timeout=self._drain_timeout(draining),
            other=cache.blocking_controller(node, target) if node and target else None,
            deleting=cache.deletions.alone(cache.shims.values()),
            timings=cache.timings.nodes,
            shims_unknown=cache.shim_references.unknown,
            policies=tuple((shim.name, shim.removal_policy) for shim in cache.shims.values() if shim.name in deleting),
        )

    async def with_former(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot with the former versions for a rollback of its node; read them only for a rollback.

        Raises:
            KubeError: they cannot be read, and no decision is allowed without them.
        """
        node, job = snapshot.node, _newest_of(snapshot.node, snapshot.jobs)
        if node is None or job is None or snapshot.shims_unknown or not (shims := in_vain(snapshot, node, job)):
            return snapshot
        there = {name: self.cache.shims[name] for name in shims if name in self.cache.shims}
        kept = [await self._kept(name, node, digest) for name, digest in had_of(node, there).items()]
        former = Former(tuple(wanted for wanted in kept if wanted is not None), there, self.cache.settings.allow_http)
        return replace(snapshot, former=former)

    async def _kept(self, name: str, node: NodeView, digest: str) -> WantedShim | None:
        """Return the spec of a former version of a Shim on a node, None if no revision has that version."""
        manifest = await self.kube.get(SHIMS, name)
        selector, namespace = label_selector(name), self.cache.settings.namespace
        listing = await self.kube.list(CONTROLLER_REVISIONS, namespace, label_selector=selector)
        revisions = revisions_of(manifest["metadata"]["uid"], listing.items)
        return kept_version(manifest, revisions, node.architecture, digest)

    def _task(self, node: NodeView, target: Target, now: float) -> Task:
        """Return the task of the Job that brings a node to its target."""
        settings, shims = self.cache.settings, self.cache.shims
        latest = now + settings.retries().most
        retry = acknowledges(node, target, settings.limits(shims.values()), latest)
        image, checksum = settings.node_installer_image, settings.require_checksum
        return task_of(node, target, shims, Rules(settings.handler, image, checksum, settings.allow_http, retry))

    def _drained(self, node: NodeView, entry: Entry | None, target: Target) -> frozenset[str]:
        """Return the Shims that change on a node, and whose label and pods are to be removed before."""
        shims = self.cache.shims
        return drained_on(node, entry, (shims[name] for name, _ in target.shims if name in shims))

    def _drain_timeout(self, draining: Iterable[str]) -> float:
        limits = self.cache.settings.limits(self.cache.shims.values())
        return max((limits[name].workload_timeout for name in draining), default=0.0)

    def _unserved(self, node: NodeView) -> bool:
        """Return whether to report on a node that there is nothing to install."""
        reported = self.cache.noted(node.uid).unserved_reported or self.cache.installer.digest is not None
        return not reported and unserved(node, self.cache.shims.values())

    async def _update_refused(self, node: NodeView | None, job: JobView | None, done_for: float) -> str:
        """Return why node_watcher does not label a verified Node, "" if it may be about to."""
        if node is None or job is None or verification_of(job, node) is None or fulfilled(job, node):
            return ""
        return await Pods(self.kube).update_refused(node, job) if done_for >= self.cache.timings.nodes.record else ""

    def _verify_timeout(self, job: JobView | None) -> float:
        """Return the seconds for the verification of a Job: the longest timeout of one of its Shims."""
        default = self.cache.settings.verify_timeout
        names_of = job.shims if job is not None else ()
        given = [self.cache.shims[name].verification.timeout for name in names_of if name in self.cache.shims]
        return max((default if item is None else item for item in given), default=default)

    def _canaries(self, job: JobView | None, target: Target | None) -> tuple[Canary, ...]:
        """Return the canaries of the Shims of a Job, without Shims that are no longer wanted."""
        wanted = dict(target.shims) if target else {}
        names_of = sorted(job.canaries) if job is not None else ()
        found = (
            canary_of(self.cache.shims[name], self.cache.settings.node_installer_image)
            for name in names_of
            if name in wanted and name in self.cache.shims
        )
        return tuple(canary for canary in found if canary is not None)

    async def _pods(self, job: JobView | None, *, explain: bool) -> tuple[CanaryPod, ...]:
        """Return the canary pods of a Job. ``explain``: with the reason, from their Events, why they do not run."""
        pods = [pod for pod in self.cache.canaries.values() if job is not None and pod.job_uid == job.uid]
        if not explain:
            return tuple(pods)
        return tuple([replace(pod, trouble=await Pods(self.kube).explained(pod)) for pod in pods])


def _newest_of(node: NodeView | None, jobs: tuple[JobView, ...]) -> JobView | None:
    """Return the newest Job of this Node, not of a former one of its name."""
    return newest(tuple(job for job in jobs if node is not None and job.node_uid == node.uid))
