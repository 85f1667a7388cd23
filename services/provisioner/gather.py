"""What provisioner knows: Nodes and its Jobs as watched, its ledger, what a failed installer's pod says.

In: changes from the informers, the ledger and pods from the API server. Out: frozen snapshots for ``plan`` and
``decide``. Called by ``app``; filled by ``watch``. Invariant: the ledger held here is one the API server has accepted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from provisioner.decide import InstallerState, Snapshot, inspect
from provisioner.plan import Ledger, World
from provisioner.resources import Manifest, read_ledger
from provisioner.settings import Settings
from trellis import names
from trellis.bus.bus import Bus
from trellis.jobs import JobIndex
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError, NotFound
from trellis.kube.resources import CONFIGMAPS, PODS
from trellis.provisioning import JobView, NodeView, newest, spec_digest
from trellis.telemetry import TraceContext

LOG_LINES = 10
LOG_BYTES = 2048
FACT_GRACE_SECONDS = 1.0
_STARTING = ("ContainerCreating", "PodInitializing")


@dataclass(eq=False)
class Known:
    """Caches of one term of leadership. ``traces``: by Node uid, the trace its opting in began."""

    kube: Kube
    bus: Bus
    settings: Settings
    nodes: Mapping[str, NodeView]
    jobs: JobIndex = field(default_factory=JobIndex)
    said: set[str] = field(default_factory=set)
    traces: dict[str, TraceContext] = field(default_factory=dict)
    seen_at: dict[str, float] = field(default_factory=dict)
    waiting_since: dict[str, float] = field(default_factory=dict)
    created_ns: dict[str, int] = field(default_factory=dict)
    ledger: Ledger | None = None
    ledger_uid: str = ""
    ledger_version: str | None = None
    forgotten: bool = False
    """Whether the stream that heard of a halt is gone."""

    def __post_init__(self) -> None:
        self.installer = self.settings.installer()
        self.digest = spec_digest(self.installer.spec())

    async def world(self) -> World:
        """Return all that a plan may depend on; reads the ledger if it is not known."""
        if self.ledger is None:
            await self._read_ledger()
        assert self.ledger is not None
        return World(
            nodes=tuple(self.nodes.values()),
            jobs=self.jobs.by_uid(),
            ledger=self.ledger,
            digest=self.digest,
            limits=self.settings.limits(),
            auto_provision=self.settings.auto_provision,
            held=self._held(),
            now=time.time(),
        )

    def _held(self) -> frozenset[str]:
        """Return the nodes whose opting in the bus is about to tell: their Jobs belong into that trace.

        The watch and the fact race; the fact is a few milliseconds behind. A node waits for it a second at most, and
        not at all while the bus is away.
        """
        if not self.bus.connected.is_set():
            return frozenset()
        since = time.monotonic() - FACT_GRACE_SECONDS
        return frozenset(uid for uid, seen in self.seen_at.items() if seen > since and uid not in self.traces)

    async def snapshot(self, name: str) -> Snapshot:
        """Return all that a decision about one node depends on; reads its installer's pod if that has news."""
        node = self.nodes.get(name)
        jobs = self.jobs.of_name(name)
        now = time.time()
        job = newest(tuple(job for job in jobs if node is not None and job.node_uid == node.uid))
        installer = None
        if job is not None and inspect(job, inspect_after=self.settings.inspect_after, now=now):
            installer = await self._installer(job)
        return Snapshot(
            name=name,
            node=node,
            jobs=jobs,
            entry=self.ledger.entries.get(node.uid) if node and self.ledger else None,
            digest=self.digest,
            auto_provision=self.settings.auto_provision,
            said=_relevant(self.said, jobs),
            installer=installer,
            verify_timeout=self.settings.verify_timeout,
            inspect_after=self.settings.inspect_after,
            now=now,
        )

    def forget_said(self) -> None:
        """Let every fact that holds be said again: the stream that heard them is gone."""
        self.said.clear()
        self.forgotten = True

    def names(self) -> set[str]:
        """Return every node name of our concern."""
        return set(self.nodes) | set(self.jobs.names())

    async def _read_ledger(self) -> None:
        try:
            manifest = await self.kube.get(CONFIGMAPS, names.LEDGER, self.settings.namespace)
        except NotFound:
            self.ledger, self.ledger_version = Ledger({}), None
        else:
            self.accept(manifest)

    def accept(self, manifest: Manifest) -> None:
        """Take a ledger as the API server returned it."""
        metadata = manifest["metadata"]
        self.ledger, self.ledger_version, self.ledger_uid = (
            read_ledger(manifest),
            metadata["resourceVersion"],
            metadata["uid"],
        )

    def doubt(self) -> None:
        """Read the ledger anew before the next plan: another wrote it, or a write's answer got lost."""
        self.ledger, self.ledger_version = None, None

    async def _installer(self, job: JobView) -> InstallerState:
        """Return what the newest pod of a Job says; what cannot be read is left empty, the Job's own words remain."""
        try:
            listing = await self.kube.list(
                PODS, job.namespace, label_selector=f"batch.kubernetes.io/job-name={job.name}"
            )
            pod = max(listing.items, key=lambda item: str(item["metadata"]["creationTimestamp"]), default=None)
            if pod is None:
                return InstallerState()
            state = installer_state(pod)
            if not state.waiting and not state.log_tail:
                state = replace(state, log_tail=await self._log_tail(pod))
        except KubeError as error:
            return InstallerState(terminated=f"its pod cannot be read: {error}")
        return state

    async def _log_tail(self, pod: Manifest) -> str:
        metadata = pod["metadata"]
        try:
            return await self.kube.pod_log(
                metadata["namespace"],
                metadata["name"],
                names.JOB_CONTAINER,
                tail_lines=LOG_LINES,
                limit_bytes=LOG_BYTES,
            )
        except KubeError:
            # The node may be cut off while its kubelet's report got through: then that is all there is.
            return ""


def _relevant(said: set[str], jobs: tuple[JobView, ...]) -> frozenset[str]:
    """Return the marks of these Jobs alone, so that a snapshot stays small however many nodes there are."""
    marks = {f"{job.uid}.{what}" for job in jobs for what in ("started", "succeeded", "failed", "removed")}
    return frozenset(marks & said)


def installer_state(pod: Manifest) -> InstallerState:
    """Read a pod's status: why the installer's container waits, how it ended, what it said last.

    A container's termination message is, by the Job's ``FallbackToLogsOnError``, the end of its log (2 KiB at most).
    """
    status: Mapping[str, Any] = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        state: Mapping[str, Any] = container.get("state") or {}
        last: Mapping[str, Any] = container.get("lastState") or {}
        waits: Mapping[str, Any] = state.get("waiting") or {}
        ended: Mapping[str, Any] = state.get("terminated") or last.get("terminated") or {}
        waiting = "" if waits.get("reason") in _STARTING else _words(waits)
        terminated = f"exit code {ended.get('exitCode')} ({ended.get('reason', 'Unknown')})" if ended else ""
        return InstallerState(waiting, terminated, str(ended.get("message") or ""))
    return InstallerState(terminated=_words(status))


def _words(state: Mapping[str, Any]) -> str:
    return ": ".join(str(state[part]) for part in ("reason", "message") if state.get(part))
