"""``trellis migrate wasmcloud-operator``: takes over host groups and Services, and deletes the aggregated API.

In: flags, the cluster. Out: a plan, which ``migrate.run`` shows and executes. Called by the command line.
Invariants: no host is restarted and no address changes; contents of Secrets are neither shown nor stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from host_manager.domain.inputs import Source, sources_of
from trellis.crds.kinds import APPLICATIONS as APPLICATION_KIND
from trellis.kube.client import Kube
from trellis.kube.crd_ownership import Place
from trellis.kube.errors import KubeError, NotFound
from trellis.kube.resources import (
    API_SERVICES,
    APPLICATIONS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    HOST_CONFIGS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRET_GRANTS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Manifest,
    Resource,
)
from trellis.names import LABEL_MANAGED_BY
from trellis.provisioning.other_controllers import NAMES, Peer
from trellis.read_model.reading.leaders import read_leadership
from trellis.read_model.reading.served import NotServedError
from trellis_cli.common.errors import exit_on_error
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import DocumentOption, Format
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.migrate.model.plan import still_writing, take_over_controllers
from trellis_cli.migrate.model.wasmcloud import (
    APPLICATION_API,
    Former,
    FormerGroup,
    plan_registration,
    plan_services,
    still_served,
)
from trellis_cli.migrate.model.wasmcloud_groups import keys_of, plan_groups, view_former_group
from trellis_cli.migrate.model.wasmcloud_kind import plan_kind
from trellis_cli.migrate.model.wasmcloud_rest import plan_rest, warnings_of
from trellis_cli.migrate.model.wasmcloud_secrets import plan_secrets
from trellis_cli.migrate.run import DryRunOption, Found, How, TakeOverOption, YesOption, list_all, migrate

_PEER: Final = Peer.WASMCLOUD_OPERATOR
_OF_OPERATOR: Final = f"{LABEL_MANAGED_BY} in ({','.join(sorted(NAMES[_PEER]))})"
"""Selects the pods of hosts and the EndpointSlices by the labels of the operator, with both its names."""
_DEFINITION: Final = f"{HOST_CONFIGS.plural}.{HOST_CONFIGS.group}"
_CHILDREN: Final[Mapping[str, Resource]] = {
    item.kind: item
    for item in (CONFIGMAPS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, DEPLOYMENTS, DAEMON_SETS, SERVICES, SECRETS)
}

_CALLS_AT_ONCE: Final = 12
"""Concurrent requests to the API server; more are not faster."""


def wasmcloud_operator(
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    take_over: TakeOverOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Take over the host groups and Services of wasmcloud-operator, and remove its aggregated API.

    Scale the operator to 0 or remove it first, or use --take-over. The CRD of Applications is applied and the
    aggregated API deleted, in this order, because without the operator that API blocks the deletion of every namespace.
    Applications stay in wadm. Finalizers of deleted host groups and Services are removed; host_manager takes over the
    remaining ones, and the plan lists the effect on each. The commands that remove the rest of the operator are
    printed.

    JSON: `{"peer", "writing": ["…"], "notes": ["…"], "steps": [{"object", "what", "do", "reason"}], "done": 3}`; `do`
    is define, take over, delete, remove finalizer, keep or leave.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        how = How(dry_run, yes, take_over, output)
        asyncio.run(migrate(_PEER, settings, how, lambda kube: _find(kube, settings, how)))


async def _find(kube: Kube, settings: ClientSettings, how: How) -> Found:
    """Read the cluster and plan.

    Raises:
        KubeError: an object cannot be read, or the server is unreachable.
    """
    former = await _read(kube)
    taking = take_over_controllers(_PEER, former.deployments) if how.force else []
    steps = [
        *plan_kind(former),
        *plan_registration(former),
        *plan_groups(former),
        *plan_services(former),
        *taking,
        *plan_rest(former),
        *plan_secrets(former),
    ]
    writing = [*still_writing(_PEER, former.deployments, (), time.time()), *still_served(former)]
    return Found(steps, writing, [*warnings_of(former), *await _notes(kube, settings, former)])


async def _read(kube: Kube) -> Former:
    groups, services, slices, pods, deployments, accounts, roles, bindings = await asyncio.gather(
        list_all(kube, HOST_CONFIGS),
        list_all(kube, SERVICES),
        list_all(kube, ENDPOINT_SLICES, _OF_OPERATOR),
        list_all(kube, PODS, _OF_OPERATOR),
        list_all(kube, DEPLOYMENTS),
        list_all(kube, SERVICE_ACCOUNTS),
        list_all(kube, CLUSTER_ROLES),
        list_all(kube, CLUSTER_ROLE_BINDINGS),
    )
    own_roles, own_bindings, grants, apps = await asyncio.gather(
        list_all(kube, ROLES), list_all(kube, ROLE_BINDINGS), list_all(kube, SECRET_GRANTS), _applications(kube)
    )
    return Former(
        registration=await _get_or_none(kube, API_SERVICES, APPLICATION_API),
        definition=await _get_or_none(kube, DEFINITIONS, _DEFINITION),
        applications=await _get_or_none(kube, DEFINITIONS, APPLICATION_KIND.name),
        groups=await read_groups(kube, groups),
        services=tuple(services),
        slices=tuple(slices),
        pods=tuple(pods),
        deployments=tuple(deployments),
        objects=(*accounts, *roles, *bindings),
        rbac=(*roles, *bindings, *own_roles, *own_bindings),
        apps=tuple(apps),
        grants=tuple(grants),
    )


async def _applications(kube: Kube) -> list[Manifest]:
    """Return the Applications; none while an APIService hides the CRD, such as that of a stopped operator.

    Raises:
        NotServedError: the CRD exists and is not served.
        KubeError: they cannot be read, or the server is unreachable.
    """
    try:
        return await list_all(kube, APPLICATIONS)
    except NotServedError as error:
        if error.place is not Place.HIDDEN:
            raise
        return []


async def read_groups(kube: Kube, manifests: Sequence[Manifest]) -> tuple[FormerGroup, ...]:
    """Read the children of each group, and the objects it refers to, in the order of the groups.

    Raises:
        KubeError: an object cannot be read, or the server is unreachable.
    """
    calls = asyncio.Semaphore(_CALLS_AT_ONCE)
    return tuple(await asyncio.gather(*(_group(kube, calls, manifest) for manifest in manifests)))


async def _group(kube: Kube, calls: asyncio.Semaphore, manifest: Manifest) -> FormerGroup:
    group = view_former_group(manifest)
    if isinstance(group, str):
        return FormerGroup(manifest, {})
    keys, sources = keys_of(group), sources_of(group)

    async def read(source: Source) -> Manifest | None:
        async with calls:
            return await _get_or_none(kube, _CHILDREN[source[0]], source[1], group.namespace)

    found = await asyncio.gather(*map(read, keys))
    named = await asyncio.gather(*map(read, sources))
    children = {key: child for key, child in zip(keys, found, strict=True) if child is not None}
    return FormerGroup(manifest, children, dict(zip(sources, named, strict=True)))


async def _get_or_none(kube: Kube, res: Resource, name: str, namespace: str | None = None) -> Manifest | None:
    """Return an object, None if it does not exist."""
    try:
        return {**await kube.get(res, name, namespace), "kind": res.kind}
    except NotFound:
        return None


async def _notes(kube: Kube, settings: ClientSettings, former: Former) -> list[str]:
    """Return a note if host_manager, which takes the groups over, is not running."""
    if not former.groups:
        return []
    try:
        leader = await read_leadership(kube, "host-manager", settings.namespace, datetime.now(UTC))
    except NotFound:
        pass  # it never ran
    except KubeError:
        return []  # this account may not read the Lease
    else:
        if leader.holder and leader.age is not None and leader.age < leader.duration:
            return []
    return ["host_manager is not running: it takes the groups over when it starts; their hosts keep running until then"]
