"""``trellis uninstall --remove-finalizers``: stops the services that set finalizers, and removes these.

In: flags, the cluster. Out: a table or JSON. Called by the command line, and by the chart before it is uninstalled.
Invariants: no finalizer is removed while a service that adds it runs; a rerun after an interruption at any point gives
the same result; neither the bus nor wadm is needed; no object is deleted; the command fails if a kind cannot be listed,
because its objects may have finalizers; Shims are left to another installation that provisions the nodes; the command
fails and leaves an EndpointSlice unchanged while its Service cannot be read or is unknown.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.text import Text

from trellis import names
from trellis.config.durations import parse_seconds
from trellis.config.settings import SettingsError
from trellis.kube.client import Kube
from trellis.kube.errors import Conflict, KubeError, NotFound, PatchTestFailed, TooManyRequests, Unavailable
from trellis.kube.lease import LeaseRecord, read_lease
from trellis.kube.reader import Selection
from trellis.kube.resources import DEPLOYMENTS, LEASES, PODS, SERVICES, Manifest, key_of
from trellis.read_model.reading.leaders import read_claim
from trellis.read_model.reading.served import NotServedError, require_undefined
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.gather import connected
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import DocumentOption, Format, make_table, print_document, print_result
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.uninstall.model import (
    SELECTOR,
    Guard,
    Leases,
    Left,
    LeftReason,
    Patch,
    Row,
    chosen,
    replicas_of,
    still_run,
)

FIELD_MANAGER: Final = names.FIELD_MANAGER_COMMAND_LINE
_AT_ONCE: Final = 16
"""Concurrent writes."""
_PASSING: Final = (Unavailable, TooManyRequests, NotFound, NotServedError)
"""Errors that are retried: they do not show that an object is missing."""


@dataclass(frozen=True, slots=True)
class Task:
    """The work and its deadline by a monotonic clock. ``places``: each guard and its namespace.

    ``claim``: namespace of the Lease by which one installation provisions the nodes. ``poll``: seconds between two
    attempts.
    """

    namespace: str
    claim: str
    places: Sequence[tuple[Guard, str | None]]
    deadline: float
    poll: float = 0.5

    @property
    def services(self) -> list[str]:
        """Names of the services to stop."""
        return list(dict.fromkeys(guard.service for guard, _ in self.places))

    @property
    def claimed(self) -> bool:
        """True if one of the CRDs belongs to the installation that provisions the nodes."""
        return any(guard.claimed for guard, _ in self.places)


def uninstall(  # noqa: PLR0913, PLR0917 - options of a command line
    remove_finalizers: Annotated[
        bool, typer.Option("--remove-finalizers", help="required: remove the finalizers of Trellis from all objects")
    ] = False,
    confined: Annotated[
        list[str] | None,
        typer.Option(
            "--in",
            metavar="NAMESPACE",
            help="only host groups of this namespace, of a confined host_manager (repeatable)",
        ),
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="time limit")] = "2m",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only list the objects")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask for confirmation")] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Remove the finalizers of Trellis from all objects.

    The objects can then be deleted without Trellis; `helm uninstall` runs it. First the services that set finalizers
    are scaled to 0. Nothing is deleted: hosts, applications and installed runtimes stay. Shims stay as they are if
    another installation provisions the nodes. Ends with 1 at the time limit, or if the owner of an object is unknown; a
    second run continues. JSON: `{"stopped": ["…"], "kinds": [{"kind", "managed", "removed", "unfinished",
    "remains", "managed_by", "unreadable", "unchanged"}]}`. `managed` is the number of objects with the finalizer;
    `unfinished` were being deleted, and are deleted without the cleanup of their service; `managed_by` is the other
    installation; `unreadable` are EndpointSlices that now belong to the Service of their label, because their
    annotation cannot be read; each of `unchanged` has `name`, `reason` and `message`.
    """
    with exit_on_error():
        if not remove_finalizers:
            raise SettingsError("--remove-finalizers: is missing; `helm uninstall` removes everything else")
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        deadline = time.monotonic() + _seconds(timeout)
        task = Task(settings.namespace, settings.claim_namespace, chosen(confined or ()), deadline)
        if not dry_run:
            _agree(yes, output)
        stopped, rows = asyncio.run(_run(settings, task, dry_run=dry_run))
        _show(stopped, rows, output)
        if left := sum(len(row.left) for row in rows):
            raise CommandError(f"{left} objects were not changed: follow the notes, then rerun the command")


def _seconds(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise SettingsError(f"--timeout: has {text!r}, {error}") from None


def _agree(yes: bool, output: Format) -> None:
    """Ask for confirmation, unless --yes is given. Raise CommandError without a terminal, or if the user declined."""
    if yes:
        return
    if output.structured or not sys.stdin.isatty():
        raise CommandError("nothing was changed: use --yes or --dry-run without a terminal")
    if not typer.confirm("Stop the services of Trellis and remove their finalizers?", err=True):
        raise CommandError("nothing was changed")


async def _run(settings: ClientSettings, task: Task, *, dry_run: bool) -> tuple[list[str], list[Row]]:
    async with connected(settings) as kube:
        rows = {guard: Row(guard) for guard, _ in task.places}
        stopped: list[str] = []
        if dry_run:
            claim = await read_claim(kube, task.claim, datetime.now(UTC)) if task.claimed else None
            _leave(rows.values(), claim.holder if claim is not None and claim.holder != task.namespace else "")
            for guard, place in task.places:
                await _look(kube, guard, place, rows[guard])
            return stopped, list(rows.values())
        leases = Leases()
        await _until(task, lambda: _stop(kube, task, leases, stopped))
        others: list[str] = []
        try:
            await _until(task, lambda: _find_other(kube, task, leases, others))
            _leave(rows.values(), *others)
            refused: list[KubeError] = []
            for guard, place in task.places:
                if rows[guard].left_to:
                    await _look(kube, guard, place, rows[guard])
                    continue
                try:
                    await _until(task, functools.partial(_free, kube, guard, place, rows[guard]))
                except KubeError as error:
                    refused.append(error)  # an error for one kind does not block the rest
            if refused:
                raise refused[0]
        except CommandError as error:
            again = "the services are stopped: rerun the command, or restore them with helm upgrade"
            raise CommandError(f"{error}; {again}") from None
        return stopped, list(rows.values())


async def _until(task: Task, attempt: Callable[[], Awaitable[str]]) -> None:
    """Repeat until nothing blocks.

    Raises:
        CommandError: the timeout expired; with the last obstacle.
        KubeError: a request was rejected.
    """
    while True:
        try:
            reason = await attempt()
        except _PASSING as error:
            reason = str(error)
        if not reason:
            return
        if time.monotonic() >= task.deadline:
            raise CommandError(f"not complete at the time limit: {reason}")
        await asyncio.sleep(task.poll)


async def _stop(kube: Kube, task: Task, leases: Leases, stopped: list[str]) -> str:
    """Scale the services to 0; return what still runs, "" for none."""
    deployments = await kube.list(DEPLOYMENTS, task.namespace, label_selector=SELECTOR)
    for item in deployments.items:
        name = item["metadata"]["name"]
        if replicas_of(item):
            await kube.merge_patch(
                DEPLOYMENTS,
                name,
                {"spec": {"replicas": 0}},
                task.namespace,
                field_manager=FIELD_MANAGER,
                subresource="scale",
            )
            stopped.append(name)
    pods = await kube.list(PODS, task.namespace, label_selector=SELECTOR)
    if running := still_run(pods.items):
        return f"still running: pod {', '.join(running)}"
    leased = (_lease(kube, names.LEASE_PREFIX + service, task.namespace) for service in task.services)
    records = await asyncio.gather(*leased)
    now = time.monotonic()
    led = {service: leases.leader(service, item, now) for service, item in zip(task.services, records, strict=True)}
    return "; ".join(f"{holder} leads {service}: stop it" for service, holder in led.items() if holder)


async def _lease(kube: Kube, name: str, namespace: str) -> LeaseRecord | None:
    try:
        return read_lease(await kube.get(LEASES, name, namespace))
    except NotFound:
        return None


async def _find_other(kube: Kube, task: Task, leases: Leases, others: list[str]) -> str:
    """Add the other installation that provisions the nodes, if there is one; return why that is still unknown."""
    if not task.claimed:
        return ""
    record = await _lease(kube, names.LEASE_NODES, task.claim)
    holder = leases.leader(names.LEASE_NODES, record, time.monotonic())
    if holder in {"", task.namespace}:
        return ""
    if not leases.renewed(names.LEASE_NODES):
        return f"installation {holder} holds Lease {task.claim}/{names.LEASE_NODES}, and may still provision the nodes"
    others.append(holder)
    return ""


def _leave(rows: Iterable[Row], other: str = "") -> None:
    """Leave the objects of the installation that provisions the nodes to ``other``, if there is one."""
    for row in rows:
        row.left_to = other if row.guard.claimed else ""


async def _look(kube: Kube, guard: Guard, place: str | None, row: Row) -> None:
    """Count the objects whose finalizer would be removed, and those that stay unchanged."""
    try:
        async for page in kube.pages(Selection(guard.res, place, guard.selector)):
            ours = [item for item in page.items if guard.is_ours(item)]
            row.there += len(ours)
            for item in ours:
                if guard.holds(item) and not row.left_to:
                    if isinstance(removal := await _removal(kube, guard, item), Left):
                        row.left[key_of(item)] = removal
                    else:
                        row.took(item)
    except NotFound as error:
        await require_undefined(kube, guard.res, error)


async def _free(kube: Kube, guard: Guard, place: str | None, row: Row) -> str:
    """Remove the finalizer from every object; return the objects that still have it after the check, "" for none."""
    guarded, there = [], 0
    try:
        async for page in kube.pages(Selection(guard.res, place, guard.selector)):
            there += sum(map(guard.is_ours, page.items))
            guarded += [item for item in page.items if guard.holds(item) and key_of(item) not in row.left]
    except NotFound as error:
        await require_undefined(kube, guard.res, error)
        return ""
    if not guarded:
        row.there += there
        return ""
    calls = asyncio.Semaphore(_AT_ONCE)
    unread: list[str] = []

    async def free(manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        name, place = metadata["name"], metadata.get("namespace")
        async with calls:
            if unread:
                return  # limits the load on the API server
            try:
                removal = await _removal(kube, guard, manifest)
            except _PASSING as error:
                unread.append(f"the Service of {guard.res.kind} {key_of(manifest)} cannot be read: {error}")
                return
            if isinstance(removal, Left):
                row.left[key_of(manifest)] = removal
                return
            try:
                await kube.json_patch(guard.res, name, removal, place, field_manager=FIELD_MANAGER)
            except (PatchTestFailed, Conflict, NotFound):
                return  # the next attempt re-reads it
            row.took(manifest)

    await asyncio.gather(*(free(item) for item in guarded))
    if unread:
        return unread[0]
    keys = ", ".join(sorted(item["metadata"]["name"] for item in guarded)[:5])
    return f"{guard.finalizer} is added again to {len(guarded)} {guard.res.plural}, {keys}: another client adds it"


async def _removal(kube: Kube, guard: Guard, manifest: Manifest) -> Patch | Left:
    """Return the patch that removes the finalizer, with the current Service if it is needed for that.

    Raises:
        KubeError: the Service could not be read; a retry can succeed.
    """
    name, place = guard.owner_name(manifest), manifest["metadata"].get("namespace")
    if not name:
        return guard.removal(manifest)
    try:
        # A list needs no further permission and proves that the Service does not exist; a 404 does not.
        services = (await kube.list(SERVICES, place, field_selector=f"metadata.name={name}")).items
    except _PASSING:
        raise
    except KubeError as error:
        return Left(LeftReason.SERVICE_UNREADABLE, str(error))
    return guard.removal(manifest, next(iter(services), None))


def _show(stopped: list[str], rows: list[Row], output: Format) -> None:
    if output.structured:
        print_document(output, {"stopped": stopped, "kinds": [row.document() for row in rows]})
        return
    if stopped:
        print_result(Text(f"scaled to 0: {', '.join(stopped)}"))
    table = make_table("KIND", "FOUND", "REMOVED", "NOTE", fold={"NOTE"})
    for row in rows:
        table.add_row(row.guard.res.kind, str(row.there), str(len(row.removed)), Text(row.note))
    print_result(table)
