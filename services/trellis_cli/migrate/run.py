"""Executes a migration: shows the plan, asks for confirmation, writes, and plans again after changes.

In: a function that reads a plan. Out: a table or JSON, then, after confirmation, the writes of its steps. Called by the
commands of ``trellis migrate``.
Invariants: only steps that were shown are executed; each write has the uid and resourceVersion of the read object;
objects that changed since are planned again; if a kind of the plan cannot be listed, nothing is planned.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.text import Text

from trellis.kube.client import Kube
from trellis.kube.errors import AlreadyExists, Conflict, NotFound
from trellis.kube.resources import DEPLOYMENTS, JOBS, NODES, SHIMS, Manifest, Resource
from trellis.provisioning.other_controllers import Peer
from trellis.read_model.reading.served import NotServedError, list_served
from trellis_cli.common.errors import CommandError
from trellis_cli.common.gather import connected
from trellis_cli.common.messages import print_note
from trellis_cli.common.output import Format, print_document, print_result
from trellis_cli.common.settings import ClientSettings
from trellis_cli.migrate.model.plan import DeleteJob, Doing, PatchDeployment, PatchNode, PatchShim, Step
from trellis_cli.migrate.model.writes import CreateObject, DeleteObject, PatchObject
from trellis_cli.migrate.views import table_of

FIELD_MANAGER: Final = "trellis.dev/migrate"
_ROUNDS: Final = 10
"""Attempts of the plan for objects that change concurrently: kubelets write to their Nodes all the time."""

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="only print the plan")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="do not ask for confirmation")]
TakeOverOption = Annotated[
    bool,
    typer.Option("--take-over", help="also if the operator still runs; Trellis then runs beside it"),
]


@dataclass(frozen=True, slots=True)
class How:
    """The options."""

    dry_run: bool
    yes: bool
    force: bool
    output: Format


@dataclass(frozen=True, slots=True)
class Found:
    """A plan, signs that the operator is still active, and notes."""

    steps: list[Step]
    writing: list[str]
    notes: list[str]

    @property
    def writes(self) -> list[Step]:
        """Steps with a write."""
        return [step for step in self.steps if step.write is not None]


Find = Callable[[Kube], Awaitable[Found]]
"""Reads the cluster and plans; raises KubeError or NotServedError if a list fails."""


async def migrate(peer: Peer, settings: ClientSettings, how: How, find: Find) -> None:
    """Show the plan, ask for confirmation, and execute it.

    Raises:
        CommandError: the operator is still active, there is no terminal, the user declined, or objects changed
            continuously.
        KubeError: an object cannot be read or written, or the server is unreachable.
    """
    async with connected(settings) as kube:
        found = await find(kube)
        if not how.output.structured:
            _show(peer, found)
        done = 0
        if found.writes and not how.dry_run:
            _agree(peer, found, how)
            agreed = {step.key for step in found.writes}
            done = await _carry_out(kube, find, agreed)
        if how.output.structured:
            steps = [step.document() for step in found.steps]
            print_document(
                how.output,
                {"peer": peer.value, "writing": found.writing, "notes": found.notes, "steps": steps, "done": done},
            )
        elif done:
            print_result(Text(f"{done} done"))


def _agree(peer: Peer, found: Found, how: How) -> None:
    """Ask for confirmation, unless --yes is given.

    Raises:
        CommandError: the operator is still active, there is no terminal, or the user declined.
    """
    if found.writing and not how.force:
        raise CommandError(
            f"{peer.value} is still active, so nothing was changed: {'; '.join(found.writing)}. "
            "Use --take-over to continue"
        )
    if how.yes:
        return
    if how.output.structured or not sys.stdin.isatty():
        raise CommandError("nothing was changed: use --yes or --dry-run without a terminal")
    if not typer.confirm(f"Execute these {len(found.writes)} steps?", err=True):
        raise CommandError("nothing was changed")


async def _carry_out(kube: Kube, find: Find, agreed: set[tuple[str, Doing]]) -> int:
    """Execute the confirmed steps, and plan changed objects again; return the number of executed steps.

    Raises:
        CommandError: objects changed faster than they could be written, or a kind is no longer served.
        KubeError: a write was rejected or not answered; later steps were not executed.
    """
    done = idle = 0
    while True:
        try:
            todo = [step for step in (await find(kube)).writes if step.key in agreed]
        except NotServedError as error:
            raise CommandError(f"{done} done; then {error}: rerun the command") from None
        changed: set[str] = set()
        before = done
        for step in todo:
            if step.node and f"Node {step.node}" in changed:
                continue
            if isinstance(step.write, PatchDeployment) and changed:
                continue  # it starts the provisioner: only after all other steps
            try:
                await _write(kube, step)
            except (AlreadyExists, Conflict, NotFound):
                changed.add(step.object)
            else:
                done += 1
        if not changed:
            return done
        idle = idle + 1 if done == before else 0
        if idle >= _ROUNDS:
            raise CommandError(f"{done} done, but {', '.join(sorted(changed))} changed continuously: rerun the command")


async def _write(kube: Kube, step: Step) -> None:
    match step.write:
        case PatchNode(name, ops):
            await kube.json_patch(NODES, name, ops, field_manager=FIELD_MANAGER)
        case PatchShim(name, ops):
            await kube.json_patch(SHIMS, name, ops, field_manager=FIELD_MANAGER)
        case PatchDeployment(namespace, name, ops):
            await kube.json_patch(DEPLOYMENTS, name, ops, namespace, field_manager=FIELD_MANAGER)
        case DeleteJob(job):
            await kube.delete(JOBS, job.name, job.namespace, uid=job.uid, resource_version=job.resource_version)
        case PatchObject(res, namespace, name, ops):
            await kube.json_patch(res, name, ops, namespace, field_manager=FIELD_MANAGER)
        case CreateObject(res, _, manifest):
            await kube.create(res, manifest)
        case DeleteObject(res, namespace, name, uid, version):
            await kube.delete(res, name, namespace, uid=uid, resource_version=version)
        case None:
            pass


def _show(peer: Peer, found: Found) -> None:
    for note in (*found.notes, *(f"{peer.value} is still active: {sign}" for sign in found.writing)):
        print_note(f"{note}")
    if found.steps:
        print_result(table_of(found.steps))
    if not found.writes:
        print_result(Text(f"nothing to migrate from {peer.value}"))


async def list_all(kube: Kube, res: Resource, label_selector: str | None = None) -> list[Manifest]:
    """Return all objects of a kind, or those with these labels; empty if the CRD is missing.

    Raises:
        NotServedError: objects may exist but cannot be listed, so nothing can be planned.
        KubeError: the list failed, or the server is unreachable.
    """
    found = await list_served(kube, res, labels=label_selector)
    return [{**item, "kind": res.kind} for item in found or ()]
