"""``trellis migrate``: takes over the objects of a retired operator, without an installation or a restart.

In: flags, the cluster. Out: for KWasm and runtime-class-manager a plan with patches of Nodes and Shims and deletions of
finished Jobs, which ``migrate.run`` shows and executes. Called by the command line.
Invariant: after a complete run, a second run has no steps.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from provisioner.domain.shim_resources import view_runtime_class
from provisioner.settings import Settings
from trellis.config.settings import load
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.kube.resources import DEPLOYMENTS, JOBS, NODES, RUNTIME_CLASSES, SHIMS
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.other_controllers import Peer
from trellis.provisioning.shims import view_shim
from trellis.read_model.reading.leaders import read_leadership
from trellis_cli.common.errors import exit_on_error
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import DocumentOption, Format
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.migrate.model.kwasm import plan_kwasm, values_of, with_values
from trellis_cli.migrate.model.plan import (
    ClusterSnapshot,
    Rules,
    still_writing,
    take_over_controllers,
    view_peer_job,
)
from trellis_cli.migrate.model.rcm import plan_rcm
from trellis_cli.migrate.run import DryRunOption, Found, How, TakeOverOption, YesOption, list_all, migrate
from trellis_cli.migrate.to_v2.command import to_v2
from trellis_cli.migrate.wasmcloud import wasmcloud_operator

FIELD_MANAGER: Final = "trellis.dev/migrate"
_PLANS: Final = {Peer.KWASM: plan_kwasm, Peer.RCM: plan_rcm}
_ROUNDS: Final = 10
"""Attempts of the plan for objects that change concurrently: kubelets write to their Nodes all the time."""

app = typer.Typer(
    help="Migrate from a retired operator, or to wasmCloud v2.",
    no_args_is_help=True,
)
app.command("wasmcloud-operator")(wasmcloud_operator)
app.command("to-v2")(to_v2)

AutoProvisionOption = Annotated[
    bool | None, typer.Option(help="setting of the provisioner [env: TRELLIS_AUTO_PROVISION]")
]
RequireChecksumOption = Annotated[
    bool | None, typer.Option(help="setting of the provisioner [env: TRELLIS_REQUIRE_CHECKSUM]")
]


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments."""

    peer: Peer
    settings: ClientSettings
    rules: Rules
    how: How
    given: frozenset[str]
    """Names of the settings of the provisioner that are set by flag or environment."""


@app.command()
def kwasm(  # noqa: PLR0913, PLR0917 - options of a command line
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    take_over: TakeOverOption = False,
    installer_image: Annotated[
        str | None, typer.Option(help="setting of the provisioner [env: TRELLIS_INSTALLER_IMAGE]")
    ] = None,
    handler: Annotated[str | None, typer.Option(help="setting of the provisioner [env: TRELLIS_HANDLER]")] = None,
    auto_provision: AutoProvisionOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Take over the nodes that KWasm labelled, and delete its finished Jobs.

    The settings are read from the operator's Deployment, also if it is scaled to 0; otherwise pass the provisioner's
    settings. With these settings the provisioner finds each node up to date and creates no Job. Uninstall the operator
    first (`helm uninstall`), or use --take-over. A node whose kubelet lists the handler is verified; another node keeps
    KWasm's label only. Run it before the services start.

    JSON: `{"peer", "writing": ["…"], "notes": ["…"], "steps": [{"object", "what", "do", "reason"}], "done": 3}`; `do`
    is take over, delete, keep or leave.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        given = load(Settings, installer_image=installer_image, handler=handler, auto_provision=auto_provision)
        how = How(dry_run, yes, take_over, output)
        asyncio.run(_run(Arguments(Peer.KWASM, settings, _rules(given), how, frozenset(given.model_fields_set))))


@app.command()
def rcm(  # noqa: PLR0913, PLR0917 - options of a command line
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    take_over: TakeOverOption = False,
    auto_provision: AutoProvisionOption = None,
    require_checksum: RequireChecksumOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Take over the Shims, nodes and RuntimeClasses of runtime-class-manager.

    Its finalizers are replaced and its finished Jobs deleted. Remove the operator first and keep its Shims, or use
    --take-over. Pass the provisioner's settings. JSON as in `migrate kwasm`.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        given = load(Settings, auto_provision=auto_provision, require_checksum=require_checksum)
        how = How(dry_run, yes, take_over, output)
        asyncio.run(_run(Arguments(Peer.RCM, settings, _rules(given), how, frozenset(given.model_fields_set))))


def _rules(settings: Settings) -> Rules:
    return Rules(settings.installer(), settings.auto_provision, settings.require_checksum)


async def _run(arguments: Arguments) -> None:
    await migrate(arguments.peer, arguments.settings, arguments.how, lambda kube: _find(kube, arguments))


async def _find(kube: Kube, arguments: Arguments) -> Found:
    """Read the cluster and plan.

    Raises:
        KubeError: something cannot be read, or the server is unreachable.
    """
    nodes, shims = await list_all(kube, NODES), await list_all(kube, SHIMS)
    jobs, deployments = await list_all(kube, JOBS), await list_all(kube, DEPLOYMENTS)
    values = values_of(deployments) if arguments.peer is Peer.KWASM else None
    rules, notes = with_values(arguments.rules, values, arguments.given)
    snapshot = ClusterSnapshot(
        nodes=tuple(map(view_node, nodes)),
        shims=tuple(map(view_shim, shims)),
        jobs=tuple(job for job in map(view_peer_job, jobs) if job is not None),
        classes=tuple(map(view_runtime_class, await list_all(kube, RUNTIME_CLASSES))),
        rules=rules,
    )
    writing = still_writing(arguments.peer, deployments, [*nodes, *shims], time.time())
    steps = take_over_controllers(arguments.peer, deployments) if arguments.how.force else []
    return Found(
        [*_PLANS[arguments.peer](snapshot), *steps], writing, [*notes, *await _notes(kube, arguments.settings)]
    )


async def _notes(kube: Kube, settings: ClientSettings) -> list[str]:
    """Return a note if the provisioner runs: it does not wait for objects that are not taken over yet."""
    try:
        leader = await read_leadership(kube, "provisioner", settings.namespace, datetime.now(UTC))
    except KubeError:
        return []  # it never ran, or this account may not read the Lease
    if leader.holder and leader.age is not None and leader.age < leader.duration:
        return ["the provisioner is running and installs on nodes that are not taken over yet: stop it first"]
    return []
