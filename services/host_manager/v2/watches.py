"""The watches of wasmCloud v2: its five kinds, only while the API server serves their group.

In: a client, namespaces. Out: filled caches, wakes. Called by ``host_manager.app`` as a background task. Invariants:
the group can appear and vanish at any time; a kind that cannot be read delays nothing else; the numbers of a heartbeat
wake nothing, because 100 hosts send seven a second; the first heartbeat after a silence does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from host_manager.timings import Timings
from host_manager.v2.gather import V2Cache
from trellis.kube.changes import Change
from trellis.kube.discovery import served_versions
from trellis.kube.errors import KubeError, NotFound
from trellis.kube.informer import Informer
from trellis.kube.resources import (
    ARTIFACTS,
    WASM_HOSTS,
    WORKLOAD_DEPLOYMENTS,
    WORKLOAD_REPLICA_SETS,
    WORKLOADS,
    Manifest,
    Resource,
)
from trellis.telemetry import get_logger
from trellis.v2.deployments import DeploymentView, ReplicaSetView, view_artifact, view_deployment, view_replica_set
from trellis.v2.hosts import HostView, view_host
from trellis.v2.snapshot import Part
from trellis.v2.workloads import TemplateView, view_workload

_log = get_logger(__name__)
Wake = Callable[[], None]


def slim_deployment(manifest: Manifest) -> DeploymentView:
    """Return the view of a WorkloadDeployment without its template, which the Workloads have, too."""
    view = view_deployment(manifest)
    return replace(view, spec=TemplateView(empty=view.spec.empty))


def slim_replica_set(manifest: Manifest) -> ReplicaSetView:
    """Return the view of a WorkloadReplicaSet without its template."""
    view = view_replica_set(manifest)
    return replace(view, spec=TemplateView(empty=view.spec.empty))


def only_numbers(change: Change[HostView]) -> bool:
    """Return whether a Host changed only as each heartbeat changes it; the regular run sees the age of the last one."""
    if change.old is None or change.new is None:
        return False
    new = change.new
    same = replace(
        change.old,
        last_seen=new.last_seen,
        version=new.version,
        system=new.system,
        memory_total=new.memory_total,
        memory_free=new.memory_free,
        components=new.components,
        workloads=new.workloads,
    )
    return same == new


def ends_silence(change: Change[HostView], silence: float) -> bool:
    """Return whether a heartbeat of a Host is the first one after ``silence`` seconds without one."""
    times = [host.last_seen for host in (change.old, change.new) if host is not None and host.last_seen is not None]
    return len(times) == 2 and times[1] - times[0] > silence


class V2Watches:
    """The informers, in the namespaces of the cache."""

    def __init__(self, cache: V2Cache, wake: Wake, timings: Timings) -> None:
        self._cache = cache
        self._wake = wake
        self._timings = timings
        self._others: tuple[str, ...] = ()

    async def run(self) -> None:
        """Watch whenever the group is served, until cancelled."""
        while True:
            if await self._is_served():
                _log.info("wasmCloud v2 found, publishing its lifecycle")
                await self._watch()
            await asyncio.sleep(self._timings.v2_served)

    async def _is_served(self) -> bool:
        try:
            versions = await served_versions(self._cache.kube, WORKLOAD_DEPLOYMENTS.group)
        except KubeError as error:
            _log.debug("API group of wasmCloud v2 not known", error=str(error))
            return False
        served = WORKLOAD_DEPLOYMENTS.version in versions
        if not served and versions and versions != self._others:
            _log.warning(
                "version of wasmCloud v2 not supported, its lifecycle is not published",
                served=list(versions),
                supported=WORKLOAD_DEPLOYMENTS.version,
            )
        self._others = versions
        return served

    async def _watch(self) -> None:
        """Run the informers until the API server does not serve the group any more."""
        informers = self._informers()
        self._cache.informers = informers
        every = [informer for kind in informers.values() for informer in kind]
        forget = self._cache.export()
        tasks = [asyncio.create_task(informer.run(), name="watch of wasmCloud v2") for informer in every]
        if self._cache.heartbeats is not None:
            tasks.append(asyncio.create_task(self._cache.heartbeats.run(), name="heartbeats of wasmCloud v2"))
        try:
            for informer in every:
                await informer.answered.wait()
            self._wake()
            while True:
                await asyncio.sleep(self._timings.v2_served)
                # An informer with objects continues: they are not deleted if their version is not served any more.
                if all(isinstance(informer.lacking or informer.failing, NotFound) for informer in every):
                    _log.info("wasmCloud v2 is not served any more")
                    return
        finally:
            forget()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._cache.clear()

    def _informers(self) -> dict[Part, list[Informer[Any]]]:
        cache = self._cache
        return {
            Part.HOSTS: [*self._kind(WASM_HOSTS, view_host, self._on_host, cache.hosts)],
            Part.WORKLOADS: [*self._kind(WORKLOADS, view_workload, self._on_change, cache.workloads)],
            Part.REPLICA_SETS: [
                *self._kind(WORKLOAD_REPLICA_SETS, slim_replica_set, self._on_change, cache.replica_sets)
            ],
            Part.DEPLOYMENTS: [*self._kind(WORKLOAD_DEPLOYMENTS, slim_deployment, self._on_change, cache.deployments)],
            Part.ARTIFACTS: [*self._kind(ARTIFACTS, view_artifact, self._on_change, cache.artifacts)],
        }

    def _kind(
        self,
        resource: Resource,
        view: Callable[[Manifest], Any],
        on_change: Callable[[Change[Any]], None],
        objects: dict[str, Any],
    ) -> Iterator[Informer[Any]]:
        for place in self._cache.places or (None,):
            yield Informer(
                self._cache.kube,
                resource,
                view,
                on_change,
                place,
                optional=True,
                refusable=True,
                on_known=self._wake,
                objects=objects,
            )

    def _on_change(self, _change: Change[Any]) -> None:
        self._wake()

    def _on_host(self, change: Change[HostView]) -> None:
        self._cache.clock.note(change.old, change.new, self._cache.kube.now())
        if not only_numbers(change) or ends_silence(change, self._timings.v2.silence):
            self._wake()
