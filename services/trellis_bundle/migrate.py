"""``trellis migrate``: takes over what KWasm or runtime-class-manager left, without installing anything again.

In: flags, the cluster. Out: a table or JSON, then, once agreed to, patches of Nodes and Shims and deletions of Jobs
that ended. Called by the command line.
Invariants: nothing is done that was not shown before; each write names the object and its state as they were read; a
second run finds nothing to do.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.text import Text

from provisioner.settings import Settings
from provisioner.shim_resources import view_runtime_class
from trellis.kube.client import Kube
from trellis.kube.errors import Conflict, KubeError, NotFound
from trellis.kube.resources import DEPLOYMENTS, JOBS, NODES, RUNTIME_CLASSES, SHIMS, Manifest, Resource
from trellis.node_and_job import view_node
from trellis.peers import Peer
from trellis.settings import load
from trellis.shims import view_shim
from trellis_bundle.cli_errors import CommandError, exit_on_error, say
from trellis_bundle.gather import connected, read_leadership
from trellis_bundle.migration import (
    DeleteJob,
    Doing,
    PatchDeployment,
    PatchNode,
    PatchShim,
    Rules,
    Step,
    World,
    still_writing,
    take_over_controllers,
    view_peer_job,
)
from trellis_bundle.migration_kwasm import plan_kwasm, values_of, with_values
from trellis_bundle.migration_rcm import plan_rcm
from trellis_bundle.migration_views import table_of
from trellis_bundle.nodes import ContextOption, KubeconfigOption
from trellis_bundle.output import Format, OutputOption, console, print_json
from trellis_bundle.settings import ClientSettings, client_settings

FIELD_MANAGER: Final = "trellis.dev/migrate"
_PLANS: Final = {Peer.KWASM: plan_kwasm, Peer.RCM: plan_rcm}
_ROUNDS: Final = 10
"""Kubelets write to their Nodes all the time: what changed meanwhile is planned anew, so often in a row."""

app = typer.Typer(
    help="Take over nodes, Shims and RuntimeClasses that a retired operator left; nothing is installed again.",
    no_args_is_help=True,
)

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="only show what would be done")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]
TakeOverOption = Annotated[
    bool,
    typer.Option(
        "--take-over", help="although the operator still runs or seems to write; Trellis then works beside it"
    ),
]
AutoProvisionOption = Annotated[
    bool | None, typer.Option(help="the provisioner's setting [env: TRELLIS_AUTO_PROVISION]")
]
RequireChecksumOption = Annotated[
    bool | None, typer.Option(help="the provisioner's setting [env: TRELLIS_REQUIRE_CHECKSUM]")
]


@dataclass(frozen=True, slots=True)
class How:
    """How the person at the terminal wants it."""

    dry_run: bool
    yes: bool
    force: bool
    output: Format


@dataclass(frozen=True, slots=True)
class Asked:
    """What the person at the terminal asked for."""

    peer: Peer
    settings: ClientSettings
    rules: Rules
    how: How
    given: frozenset[str]
    """Names of the provisioner's settings that were given by flag or environment."""


@dataclass(frozen=True, slots=True)
class Found:
    """A plan, what shows that the operator still writes, and what else is worth knowing."""

    steps: list[Step]
    writing: list[str]
    notes: list[str]

    @property
    def writes(self) -> list[Step]:
        """The steps that change something."""
        return [step for step in self.steps if step.write is not None]


@app.command()
def kwasm(  # noqa: PLR0913, PLR0917 - options of a command line
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    take_over: TakeOverOption = False,
    installer_image: Annotated[
        str | None, typer.Option(help="the provisioner's setting [env: TRELLIS_INSTALLER_IMAGE]")
    ] = None,
    handler: Annotated[str | None, typer.Option(help="the provisioner's setting [env: TRELLIS_HANDLER]")] = None,
    auto_provision: AutoProvisionOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Take over the nodes that KWasm labelled, and delete its Jobs that ended.

    The operator's values are read from its Deployment while there is one, scaled to 0 or not; else, give the
    provisioner's settings as it has them: by them it will find each node as it wants it, and make no Job.
    Before that the operator has to be gone (`helm uninstall`), or --take-over be given. A node whose handler the
    kubelet lists is proved; another keeps KWasm's label only. Run it before the services are started.

    JSON: `{"peer", "writing": ["…"], "notes": ["…"], "steps": [{"object", "what", "do", "why"}], "done": 3}`; `do` is
    take over, delete, keep or leave.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        given = load(Settings, installer_image=installer_image, handler=handler, auto_provision=auto_provision)
        how = How(dry_run, yes, take_over, output)
        asyncio.run(_migrate(Asked(Peer.KWASM, settings, _rules(given), how, frozenset(given.model_fields_set))))


@app.command()
def rcm(  # noqa: PLR0913, PLR0917 - options of a command line
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    take_over: TakeOverOption = False,
    auto_provision: AutoProvisionOption = None,
    require_checksum: RequireChecksumOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Take over the Shims of runtime-class-manager, the nodes it labelled, and its RuntimeClasses.

    Its finalizers are replaced by ours, its Jobs that ended are deleted. Before that the operator has to be gone, with
    its Shims still there, or --take-over be given. Give the provisioner's settings as it has them. JSON as in
    `migrate kwasm`.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        given = load(Settings, auto_provision=auto_provision, require_checksum=require_checksum)
        how = How(dry_run, yes, take_over, output)
        asyncio.run(_migrate(Asked(Peer.RCM, settings, _rules(given), how, frozenset(given.model_fields_set))))


def _rules(settings: Settings) -> Rules:
    return Rules(settings.installer(), settings.auto_provision, settings.require_checksum)


async def _migrate(asked: Asked) -> None:
    peer, how = asked.peer, asked.how
    async with connected(asked.settings) as kube:
        found = await _find(kube, asked)
        if how.output is Format.TABLE:
            _show(peer, found)
        done = 0
        if found.writes and not how.dry_run:
            _agree(peer, found, how)
            agreed = {step.key for step in found.writes}
            done = await _carry_out(kube, asked, agreed)
        if how.output is Format.JSON:
            steps = [step.document() for step in found.steps]
            print_json(
                {"peer": peer.value, "writing": found.writing, "notes": found.notes, "steps": steps, "done": done}
            )
        elif done:
            console().print(Text(f"{done} done"))


def _agree(peer: Peer, found: Found, how: How) -> None:
    """Ask, unless that was answered beforehand.

    Raises:
        CommandError: the operator still writes, nobody can be asked, or the answer is no.
    """
    if found.writing and not how.force:
        raise CommandError(
            f"{peer.value} still writes, so nothing was done: {'; '.join(found.writing)}. "
            "Give --take-over to do it all the same"
        )
    if how.yes:
        return
    if how.output is Format.JSON or not sys.stdin.isatty():
        raise CommandError("nothing was done: give --yes, or --dry-run, where nobody can be asked")
    if not typer.confirm(f"Do these {len(found.writes)} steps?", err=True):
        raise CommandError("nothing was done")


async def _find(kube: Kube, asked: Asked) -> Found:
    """Read the cluster and plan.

    Raises:
        KubeError: something cannot be read, or the server went away.
    """
    nodes, shims = await _list(kube, NODES), await _list(kube, SHIMS)
    jobs, deployments = await _list(kube, JOBS), await _list(kube, DEPLOYMENTS)
    values = values_of(deployments) if asked.peer is Peer.KWASM else None
    rules, told = with_values(asked.rules, values, asked.given)
    world = World(
        nodes=tuple(map(view_node, nodes)),
        shims=tuple(map(view_shim, shims)),
        jobs=tuple(job for job in map(view_peer_job, jobs) if job is not None),
        classes=tuple(map(view_runtime_class, await _list(kube, RUNTIME_CLASSES))),
        rules=rules,
    )
    writing = still_writing(asked.peer, deployments, [*nodes, *shims], time.time())
    steps = take_over_controllers(asked.peer, deployments) if asked.how.force else []
    return Found([*_PLANS[asked.peer](world), *steps], writing, [*told, *await _notes(kube, asked.settings)])


async def _list(kube: Kube, res: Resource) -> list[Manifest]:
    """Return all objects of a kind, none if the cluster does not know it."""
    try:
        found = await kube.list(res)
    except NotFound:
        return []
    return [{**item, "kind": res.kind} for item in found.items]


async def _notes(kube: Kube, settings: ClientSettings) -> list[str]:
    """Say that the provisioner runs already: it does not wait for what is not taken over yet."""
    try:
        leader = await read_leadership(kube, "provisioner", settings.namespace, datetime.now(UTC))
    except KubeError:
        return []  # it never ran here, or who asks may not know
    if leader.holder and leader.age is not None and leader.age < leader.duration:
        return ["the provisioner is running: it installs on nodes that are not taken over yet; better stop it before"]
    return []


async def _carry_out(kube: Kube, asked: Asked, agreed: set[tuple[str, Doing]]) -> int:
    """Do what was agreed to, planning anew what changed meanwhile; returns how many steps were done.

    Raises:
        CommandError: objects changed faster than they could be written.
        KubeError: a write was refused or not answered; what follows it was not done.
    """
    done = idle = 0
    while True:
        todo = [step for step in (await _find(kube, asked)).writes if step.key in agreed]
        changed: set[str] = set()
        before = done
        for step in todo:
            if step.node and f"Node {step.node}" in changed:
                continue
            if isinstance(step.write, PatchDeployment) and changed:
                continue  # it lets the provisioner begin: not before everything is taken over
            try:
                await _write(kube, step)
            except (Conflict, NotFound):
                changed.add(step.object)
            else:
                done += 1
        if not changed:
            return done
        idle = idle + 1 if done == before else 0
        if idle >= _ROUNDS:
            raise CommandError(f"{done} done, but {', '.join(sorted(changed))} changed all the time: run this again")


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
        case None:
            pass


def _show(peer: Peer, found: Found) -> None:
    for note in (*found.notes, *(f"{peer.value} still writes: {sign}" for sign in found.writing)):
        say(f"note: {note}")
    if found.steps:
        console().print(table_of(found.steps))
    if not found.writes:
        console().print(Text(f"nothing to do: nothing of {peer.value} is left to be taken over"))
