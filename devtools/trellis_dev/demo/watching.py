"""Measures the progress of the nodes from outside the services.

In: watches of Nodes, installer Jobs and the ledger; events from the bus. Out: progress, rows, the maximum number of
nodes in progress. Called by the demo. Invariant: counts come from the API server, not from reports of the services.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from trellis import names
from trellis.bus.errors import BusError
from trellis.bus.streams.tail import Selection, tail
from trellis.events.node import NodeReady
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import CONFIGMAPS, JOBS, NODES
from trellis.provisioning.job_index import JobIndex
from trellis.provisioning.ledger import Ledger, read_ledger
from trellis.provisioning.nodes_and_jobs import view_job, view_node
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import INSTALLER_JOBS, PROVISION, JobState, JobView, NodeView
from trellis.read_model.tables.nodes import NodeRow, NodeState, rows_of, summary
from trellis.telemetry import trace_from
from trellis_cli.common.errors import CommandError, describe_error
from trellis_cli.common.settings import ClientSettings
from trellis_cli.events import line_of
from trellis_dev.demo.display import Display

FIELD_MANAGER: Final = "trellis.dev/demo"
_LOOK_SECONDS: Final = 0.5
_EVENTS_SINCE: Final = timedelta(minutes=1)
_LAST_EVENTS_SECONDS: Final = 2.0


class Watching:
    """Watches of one run. ``most_in_progress`` is the maximum number of nodes in progress at the same time.

    ``trace_ids``: by name of a node, the trace of its newest installation. ``shims``: those whose nodeSelectors count.
    """

    def __init__(self, kube: Kube, settings: ClientSettings, wanted: Iterable[str], display: Display) -> None:
        self._wanted = frozenset(wanted)
        self.most_in_progress = 0
        self.trace_ids: dict[str, str] = {}
        self.shims: tuple[ShimView, ...] = ()
        self._accepted: dict[str, int | None] = {}
        self._kube = kube
        self._settings = settings
        self._display = display
        self._changed = asyncio.Event()
        self._published_ready: set[str] = set()
        self._by_node = JobIndex()
        self._nodes = Informer(kube, NODES, view_node, self._on_node)
        self._jobs = Informer(
            kube, JOBS, view_job, self._on_job, namespace=settings.installer_namespace, label_selector=INSTALLER_JOBS
        )
        self._ledgers = Informer(kube, CONFIGMAPS, read_ledger, self._on_ledger, namespace=settings.namespace)

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines that have to run during the measurement."""
        return [self._nodes.run(), self._jobs.run(), self._ledgers.run(), self._show_events()]

    async def synced(self) -> None:
        """Wait until the existing objects are in the cache."""
        for informer in (self._nodes, self._jobs, self._ledgers):
            await informer.synced.wait()

    async def opt_in(self) -> None:
        """Annotate all selected nodes at once."""
        await asyncio.gather(*(self._annotate(self._nodes.objects[name]) for name in self._wanted))

    async def reached(self, wanted: Mapping[str, NodeState], seconds: float, check: Callable[[], None]) -> float:
        """Wait until each node is in its state; return the time of the last one, by the monotonic clock.

        A failed node counts once its Node records the failure, which commands read.

        Raises:
            CommandError: a node failed unexpectedly, not all nodes are in their state in time, or ``check`` raises.
        """
        deadline = time.monotonic() + seconds
        while True:
            rows = [row for row in self._rows() if row.name in wanted]
            self._display.count(sum(row.state is NodeState.READY for row in rows), len(rows))
            if all(self._is_in(row, wanted[row.name]) for row in rows):
                return time.monotonic()
            for row in rows:
                failed = row.state is NodeState.FAILED and wanted[row.name] is not NodeState.FAILED
                if failed and row.attempt != self._accepted.get(row.name):
                    raise CommandError(f"node {row.name} failed: {row.message}")
            await self._wait_until(deadline, seconds, check)

    async def until_handlers_listed(self, nodes: Iterable[str], seconds: float, check: Callable[[], None]) -> None:
        """Wait until each node lists runtime handlers: before that, a Shim cannot be verified by them.

        Raises:
            CommandError: a node lists none in time, or ``check`` raises.
        """
        deadline = time.monotonic() + seconds
        while not all(self._nodes.objects[name].handlers for name in nodes):
            await self._wait_until(deadline, seconds, check)

    def accept(self, row: NodeRow) -> None:
        """Accept the failure that a row shows: only a later attempt counts as an unexpected failure."""
        self._accepted[row.name] = row.attempt

    async def last_events(self) -> None:
        """Wait for the ready event of each selected node; events follow the labels within milliseconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_EVENTS_SECONDS):
                while not self._published_ready >= self._wanted:
                    await self._wait()

    def rows(self) -> list[NodeRow]:
        """Return the current state of each node."""
        return self._rows(self.shims)

    def missing(self) -> list[str]:
        """Return the selected nodes that the cluster does not have."""
        return [name for name in sorted(self._wanted) if name not in self._nodes.objects]

    def known(self) -> list[str]:
        """Return the names of all nodes of the cluster."""
        return sorted(self._nodes.objects)

    def _is_in(self, row: NodeRow, state: NodeState) -> bool:
        return row.state is state and (
            state is not NodeState.FAILED or self._nodes.objects[row.name].failed is not None
        )

    def _rows(self, shims: tuple[ShimView, ...] = ()) -> list[NodeRow]:
        """Return the rows; without ``shims``, which is quicker, a node without an attempt counts as not opted in."""
        ledger = self._ledgers.objects.get(f"{self._settings.namespace}/{names.LEDGER}", Ledger({}))
        return rows_of(self._nodes.objects.values(), self._by_node.by_uid(), ledger, shims)

    async def _wait_until(self, deadline: float, seconds: float, check: Callable[[], None]) -> None:
        """Wait for a change, but not after the deadline. Raises CommandError after it, and what ``check`` raises."""
        if time.monotonic() > deadline:
            raise CommandError(f"not all nodes are provisioned after {seconds:.0f} s: {summary(self.rows())}")
        check()
        await self._wait()

    async def _wait(self) -> None:
        """Wait for a change, with a short timeout: the services can end without one."""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def _annotate(self, node: NodeView) -> None:
        path = f"/metadata/annotations/{names.ANNOTATION_OPT_IN.replace('/', '~1')}"
        ops: list[dict[str, object]] = [{"op": "test", "path": "/metadata/uid", "value": node.uid}]
        if not node.has_annotations:
            ops.append({"op": "add", "path": "/metadata/annotations", "value": {}})
        ops.append({"op": "add", "path": path, "value": "true"})
        await self._kube.json_patch(NODES, node.name, ops, field_manager=FIELD_MANAGER)

    async def _show_events(self) -> None:
        recent = Selection(since=datetime.now(UTC) - _EVENTS_SINCE)
        try:
            async for event in tail(self._settings.nats_url, recent, credentials=self._settings.nats_credentials):
                self._display.event(line_of(event))
                if (event.noun, event.event_name) == (NodeReady.noun, NodeReady.event_name):
                    self._published_ready.update(event.key)
                    self._changed.set()
        except BusError as error:
            self._display.step(f"events cannot be shown: {describe_error(error)}")

    def _on_node(self, change: Change[NodeView]) -> None:
        del change
        self._changed.set()

    def _on_job(self, change: Change[JobView]) -> None:
        self._by_node.change(change.old, change.new)
        job = change.new
        if job is not None and change.old is None and job.operation == PROVISION:
            trace = trace_from(job.traceparent)
            self.trace_ids[job.node] = trace.traceparent.split("-")[1] if trace else ""
        active = sum(job.state is JobState.ACTIVE for job in self._jobs.objects.values())
        self._in_progress(active)

    def _on_ledger(self, change: Change[Ledger]) -> None:
        self._in_progress(len(change.new.entries) if change.new is not None else 0)

    def _in_progress(self, count: int) -> None:
        self.most_in_progress = max(self.most_in_progress, count)
        self._changed.set()
