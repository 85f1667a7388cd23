"""What a plan of all nodes, and a decision about one, depend on.

In: ``Known``, and from the API server what it does not watch: the ledger, an installer's pod, who uses a Shim. Out:
frozen worlds for ``plan``, frozen snapshots for ``decide``. Called by ``app``.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

from provisioner.domain.actions import Snapshot
from provisioner.domain.canary import Canary, CanaryPod, canary_of
from provisioner.domain.decide import inspect, labelled, leaving, to_begin
from provisioner.domain.job_clock import at_work
from provisioner.domain.plan import World, begun_of
from provisioner.domain.proving import in_vain
from provisioner.domain.tasks import Former, had_of, kept_version
from provisioner.known import Known
from trellis.installer_api.spec import ShimWish
from trellis.kube.resources import CONTROLLER_REVISIONS, SHIMS
from trellis.provisioning.ledger import Ledger
from trellis.provisioning.leftovers import fulfilled
from trellis.provisioning.revisions import label_selector, revisions_of
from trellis.provisioning.views import JobView, NodeView, Target, newest, proof_of


async def world_of(known: Known) -> World:
    """Return all that a plan may depend on; reads the ledger if it is not known.

    Of the nodes only those at which something is to be done or is under way: the others are counted.
    """
    if known.ledger is None and (manifest := await known.read_ledger()):
        known.accept(manifest)
    ledger = known.ledger = known.ledger or Ledger({})
    jobs, begun, feared = known.jobs.by_uid(), known.begun.entries(), {}
    targets, resting = known.fleet.look_at({**jobs, **ledger.entries, **begun})
    for index, (node, _) in enumerate(targets):
        if names := known.feared(node, ledger.entries.get(node.uid)):
            feared[node.uid] = names
            targets[index] = known.fearing(node, names)
    left = {job.uid: known.clock.left(job) for of_node in jobs.values() for job in of_node}
    return World(
        nodes=tuple(node for node, _ in targets),
        targets={node.uid: target for node, target in targets if target is not None},
        resting=resting,
        jobs=jobs,
        ledger=ledger,
        limits=known.settings.limits(known.shims.values()),
        retries=known.settings.retries(),
        held=known.held(),
        settles_in=max(0.0, known.settled_at - time.monotonic()),
        held_again=known.timings.held,
        hands_off=frozenset(
            node.uid for node, target in targets if target and (labelled(node, target) or known.other(node, target))
        ),
        now=known.kube.now(),
        begun=begun,
        feared=feared,
        stuck=frozenset(uid for uid, seconds in left.items() if seconds <= 0),
        stuck_in=min((seconds for seconds in left.values() if 0 < seconds < math.inf), default=None),
    )


async def snapshot_of(known: Known, name: str) -> Snapshot:
    """Return all that a decision about one node depends on; reads its installer's pod if that has news."""
    await known.deletions.look(known.shims.values())
    node = known.nodes.get(name)
    jobs = known.jobs.of_name(name)
    now = known.kube.now()
    job = newest(tuple(job for job in jobs if node is not None and job.node_uid == node.uid))
    installer = None
    if job is not None and inspect(job, inspect_after=known.settings.inspect_after, now=now):
        installer = await known.pods.installer(job)
    entry = known.ledger.entries.get(node.uid) if node and known.ledger else None
    target = known.target(node) if node else None
    feared = known.feared(node, entry) if node else frozenset[str]()
    if node and feared:
        node, target = known.fearing(node, feared)
    target = begun_of(node, target, entry) if node else None
    going = leaving(node, target) if node and target and entry else ()
    begins = node is not None and entry is not None and to_begin(node, jobs, entry)
    timeout = _verify_timeout(known, job)
    done_for = known.clock.done_for(job) if job is not None else 0.0
    return Snapshot(
        name=name,
        node=node,
        jobs=jobs,
        entry=entry,
        target=target,
        said=_relevant(known.said, jobs),
        installer=installer,
        verify_timeout=timeout,
        inspect_after=known.settings.inspect_after,
        now=now,
        done_for=done_for,
        feared=feared,
        stuck_in=known.clock.left(job) if job is not None and at_work(job) else math.inf,
        pod_refused=known.pod_refusals.words(job.uid) if job is not None else "",
        pod_refused_for=known.pod_refusals.seconds(job.uid) if job is not None else 0.0,
        refusal_retry=known.refusal_retry(),
        update_refused=await _update_refused(known, node, job, done_for),
        refused=known.refused.words(node.uid) if node is not None else "",
        task=known.task(node, target) if begins and node and target else None,
        blocked_for=known.blocked_for(node.uid) if node is not None else 0.0,
        pods_left=await known.pods.at_work(known.settings.installer_namespace, name) if begins else (),
        tell_skip=node is not None and node.skip is not None and known.told_skipped.get(node.uid) != node.skip,
        canaries=_canaries(known, job, target),
        pods=await _pods(known, job, explain=done_for >= timeout),
        unserved=node is not None and known.unserved(node),
        users=await known.pods.users(name, going, known.shims) if going else (),
        other=known.other(node, target) if node and target else None,
        deleting=known.deletions.alone(known.shims.values()),
        timings=known.timings.nodes,
        shims_unknown=known.marks.unknown,
        policies=tuple((shim.name, shim.removal_policy) for shim in known.shims.values() if shim.name in going),
    )


async def with_former(known: Known, snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with the former versions that its node may go back to; reads them if it does.

    Raises:
        KubeError: they cannot be read, and nothing may be decided without them.
    """
    node = snapshot.node
    job = newest(tuple(job for job in snapshot.jobs if node is not None and job.node_uid == node.uid))
    if node is None or job is None or snapshot.shims_unknown or not (shims := in_vain(snapshot, node, job)):
        return snapshot
    there = {name: known.shims[name] for name in shims if name in known.shims}
    kept = [await _kept(known, name, node, digest) for name, digest in had_of(node, there).items()]
    former = Former(tuple(wish for wish in kept if wish is not None), there, known.settings.allow_http)
    return replace(snapshot, former=former)


async def _kept(known: Known, name: str, node: NodeView, digest: str) -> ShimWish | None:
    """Return what installs a version of a Shim that a node had, None if that version is not kept."""
    manifest = await known.kube.get(SHIMS, name)
    listing = await known.kube.list(CONTROLLER_REVISIONS, known.settings.namespace, label_selector=label_selector(name))
    revisions = revisions_of(manifest["metadata"]["uid"], listing.items)
    return kept_version(manifest, revisions, node.architecture, digest)


async def _update_refused(known: Known, node: NodeView | None, job: JobView | None, done_for: float) -> str:
    """Return why node_watcher does not write on a Node what is proved there, "" if it may be about to."""
    if node is None or job is None or proof_of(job, node) is None or fulfilled(job, node):
        return ""
    return await known.pods.update_refused(node, job) if done_for >= known.timings.nodes.record else ""


def _verify_timeout(known: Known, job: JobView | None) -> float:
    """Return how long a node has to prove what a Job installed: the longest that one of its Shims is given."""
    default = known.settings.verify_timeout
    names_of = job.shims if job is not None else ()
    given = [known.shims[name].verification.timeout for name in names_of if name in known.shims]
    return max((default if one is None else one for one in given), default=default)


def _canaries(known: Known, job: JobView | None, target: Target | None) -> tuple[Canary, ...]:
    """Return what tries the Shims of a Job, but for those that are no longer wanted."""
    wanted = dict(target.shims) if target else {}
    names_of = sorted(job.canaries) if job is not None else ()
    found = (
        canary_of(known.shims[name], known.installer.own_image)
        for name in names_of
        if name in wanted and name in known.shims
    )
    return tuple(canary for canary in found if canary is not None)


async def _pods(known: Known, job: JobView | None, *, explain: bool) -> tuple[CanaryPod, ...]:
    """Return the canary pods of a Job. ``explain``: one that did not end says why as far as its Events know."""
    pods = [pod for pod in known.canaries.values() if job is not None and pod.job_uid == job.uid]
    if not explain:
        return tuple(pods)
    return tuple([replace(pod, trouble=await known.pods.explained(pod)) for pod in pods])


def _relevant(said: set[str], jobs: tuple[JobView, ...]) -> frozenset[str]:
    """Return the marks of these Jobs alone, so that a snapshot stays small however many nodes there are."""
    marks = {f"{job.uid}.{what}" for job in jobs for what in ("started", "succeeded", "failed", "removed")}
    return frozenset(marks & said)
