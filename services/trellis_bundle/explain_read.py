"""Reads what the pages of ``trellis explain`` are made of, a kind a function.

In: what may be read, a name. Out: the page. Called by ``explain``. Writes nothing. Invariant: the kind that is asked
about has to be readable; of everything else a page says what was lacking.
"""

from __future__ import annotations

import asyncio

from provisioner.actions import Reason
from provisioner.plan import Ledger
from provisioner.resources import read_ledger
from service_reflector.views import view_pod, view_service, view_slice
from service_reflector.watch import POD_SELECTOR, SLICE_SELECTOR
from trellis import names
from trellis.kube.errors import Forbidden, KubeError, NotFound
from trellis.kube.resources import (
    CONFIGMAPS,
    ENDPOINT_SLICES,
    EVENTS,
    HOST_CONFIGS,
    JOBS,
    NODES,
    PODS,
    SECRET_GRANTS,
    SERVICE_ACCOUNTS,
    SERVICES,
    SHIMS,
    WASM_CONTROLLERS,
    Manifest,
    Resource,
)
from trellis.lattice.group_views import view_group
from trellis.node_and_job import view_node
from trellis.provisioning import INSTALLER_JOBS
from trellis.shims import view_shim
from trellis_bundle.apps import read_apps
from trellis_bundle.apps_model import application_of
from trellis_bundle.cli_errors import CommandError
from trellis_bundle.controllers_model import HOST
from trellis_bundle.explain_application import MANAGER, AppWorld, explain_application
from trellis_bundle.explain_controller import ControllerWorld, explain_controller
from trellis_bundle.explain_grant import Account, GrantWorld, explain_grant, identity_of, named_accounts
from trellis_bundle.explain_hosts import MANAGER as HOST_MANAGER
from trellis_bundle.explain_hosts import GroupWorld, explain_group
from trellis_bundle.explain_job import held_up_by_node, refused_by_node
from trellis_bundle.explain_node import NodeWorld, explain_node
from trellis_bundle.explain_service import REFLECTOR, Warned, World, explain_service
from trellis_bundle.explain_shim import ShimWorld, explain_shim
from trellis_bundle.explaining import Explanation, Leader, Line
from trellis_bundle.reading import Reading
from trellis_bundle.secrets_check_model import impersonation_review

UNBEGUN = "nothing is begun on any node"
UNMARKED = "no node is labelled"
_WARNING = "type=Warning"


async def node_page(reading: Reading, installers: str, name: str) -> Explanation:
    """Return the page of a node; ``installers``: namespace of the installer Jobs."""
    node = await _one(reading, NODES, name)
    if node is None:
        return explain_node(NodeWorld(None, installers), name)
    uid = node["metadata"]["uid"]
    jobs, events, pods, shims, ledger, leaders = await asyncio.gather(
        reading.list(JOBS, installers, labels=f"{INSTALLER_JOBS},{names.LABEL_NODE_UID}={uid}"),
        reading.list(EVENTS, None, fields=f"{_WARNING},involvedObject.uid={uid}"),
        reading.list(PODS, installers, fields=f"spec.nodeName={name}"),
        reading.list(SHIMS),
        _ledger(reading),
        _provisioning(reading),
    )
    if jobs:
        events += await reading.list(EVENTS, installers, fields=_WARNING)
    views = [view_shim(one) for one in shims]
    return explain_node(NodeWorld(node, installers, jobs, pods, events, views, ledger, leaders, reading.notes), name)


async def shim_page(reading: Reading, installers: str, name: str) -> Explanation:
    """Return the page of a Shim; ``installers``: namespace of the installer Jobs."""
    shim = await _one(reading, SHIMS, name)
    if shim is None:
        return explain_shim(ShimWorld(None), name)
    uid = shim["metadata"]["uid"]
    nodes, held, events, ledger, leaders = await asyncio.gather(
        reading.list(NODES),
        held_up(reading, installers),
        reading.list(EVENTS, None, fields=f"{_WARNING},involvedObject.uid={uid}"),
        _ledger(reading),
        _provisioning(reading),
    )
    views = [view_node(one) for one in nodes]
    return explain_shim(ShimWorld(shim, views, held, events, ledger, leaders, reading.notes), name)


async def held_up(reading: Reading, installers: str) -> dict[str, Line]:
    """Return what keeps installer Jobs from going on, by the name of their node."""
    jobs, pods, events, refused = await asyncio.gather(
        reading.list(JOBS, installers, labels=INSTALLER_JOBS),
        reading.list(PODS, installers, labels=f"{names.LABEL_JOB}=true"),
        reading.list(EVENTS, installers, fields=_WARNING),
        reading.list(EVENTS, None, fields=f"{_WARNING},reason={Reason.JOB_REFUSED}"),
    )
    return refused_by_node(refused, jobs, installers) | held_up_by_node(jobs, pods, events)


async def group_page(reading: Reading, name: str, namespace: str | None) -> Explanation:
    """Return the page of a group of hosts."""
    groups = await _those(reading, HOST_CONFIGS, name, namespace)
    events, leader = await asyncio.gather(
        _events_of(reading, groups), reading.leader(HOST_MANAGER, "what its spec says is not carried out")
    )
    return explain_group(GroupWorld(groups, events, [leader], reading.notes), name, namespace)


async def controller_page(reading: Reading, name: str, namespace: str | None) -> Explanation:
    """Return the page of a controller in Wasm."""
    found = await _those(reading, WASM_CONTROLLERS, name, namespace)
    events, leader = await asyncio.gather(_events_of(reading, found), reading.leader(HOST, "it is not called"))
    return explain_controller(ControllerWorld(found, events, [leader], reading.notes), name, namespace)


async def grant_page(reading: Reading, name: str, namespace: str | None) -> Explanation:
    """Return the page of a SecretGrant."""
    grants = await _those(reading, SECRET_GRANTS, name, namespace)
    groups = await reading.list(HOST_CONFIGS)
    known = None if reading.notes else groups
    accounts = [await _account(reading, grants[0], one) for one in named_accounts(grants[0])] if grants else []
    return explain_grant(GrantWorld(grants, known, accounts, reading.notes), name, namespace)


async def service_page(reading: Reading, name: str, namespace: str | None) -> Explanation:
    """Return the page of a Service that mirrors an application."""
    services, slices, groups, pods, warnings, leader = await asyncio.gather(
        listed(reading, SERVICES, namespace),
        reading.list(ENDPOINT_SLICES, namespace, labels=SLICE_SELECTOR),
        reading.wide(HOST_CONFIGS, namespace),
        reading.wide(PODS, namespace, labels=POD_SELECTOR),
        warned(reading, namespace),
        reading.leader(REFLECTOR, "nothing follows"),
    )
    views = [view_service(one) for one in services]
    _one_place("Service", name, {one.namespace for one in views if one.name == name and one.application})
    world = World(
        views,
        [view_slice(one) for one in slices],
        [view_group(one) for one in groups],
        [view_pod(one) for one in pods],
        warnings,
        leader.holder,
        reading.notes,
    )
    return explain_service(world, name, namespace)


async def application_page(reading: Reading, name: str, namespace: str | None) -> Explanation:
    """Return the page of an Application."""
    apps = await _apps(reading, namespace)
    mine = [one["metadata"] for one in apps if name in {one["metadata"]["name"], application_of(one["metadata"])}]
    _one_place("Application", name, {metadata["namespace"] for metadata in mine})
    groups, services, events, warnings, leader = await asyncio.gather(
        reading.list(HOST_CONFIGS, namespace),
        reading.list(SERVICES, namespace),
        reading.list(EVENTS, namespace, fields=_WARNING),
        warned(reading, namespace),
        reading.leader(MANAGER, ""),
    )
    views = [view_service(one) for one in services]
    lacks = any(HOST_CONFIGS.plural in line.text for line in reading.notes)
    world = AppWorld(apps, None if lacks else groups, views, events, leader.holder, warnings, reading.notes)
    return explain_application(world, name, namespace)


async def warned(reading: Reading, namespace: str | None) -> list[Warned]:
    """Return the warnings about groups of hosts in all namespaces, or where only that may be read in one."""
    about = f"{_WARNING},involvedObject.kind={HOST_CONFIGS.kind}"
    found = [view_warning(one) for one in await reading.wide(EVENTS, namespace, fields=about)]
    return [one for one in found if one.group]


def view_warning(event: Manifest) -> Warned:
    """Project an Event; one that is no warning about a group of hosts has no group."""
    about: Manifest = event.get("involvedObject") or {}
    fits = event.get("type") == "Warning" and about.get("kind") == HOST_CONFIGS.kind
    group = f"{about.get('namespace', '')}/{about.get('name', '')}" if fits else ""
    return Warned(group, str(event.get("reason") or ""), str(event.get("message") or ""))


async def listed(reading: Reading, res: Resource, namespace: str | None) -> list[Manifest]:
    """Return the objects of the kind that is asked about.

    Raises:
        CommandError: this account may not read them in all namespaces, and none was named.
        KubeError: they could not be read.
    """
    try:
        return (await reading.kube.list(res, namespace)).items
    except NotFound:
        return []
    except Forbidden as error:
        raise _unreadable(error, namespace) from None


def _unreadable(error: KubeError, namespace: str | None) -> Exception:
    if namespace is None:
        return CommandError(f"{error}; this account may not look in all namespaces: name one with --namespace")
    return error


async def _apps(reading: Reading, namespace: str | None) -> list[Manifest]:
    try:
        return await read_apps(reading.kube, namespace)
    except Forbidden as error:
        raise _unreadable(error, namespace) from None


async def _those(reading: Reading, res: Resource, name: str, namespace: str | None) -> list[Manifest]:
    """Return the object of a name; raises CommandError if several namespaces have one."""
    there = [one for one in await listed(reading, res, namespace) if one["metadata"]["name"] == name]
    _one_place(res.kind, name, {one["metadata"]["namespace"] for one in there})
    return there


def _one_place(kind: str, name: str, namespaces: set[str]) -> None:
    if len(namespaces) > 1:
        places = ", ".join(sorted(namespaces))
        raise CommandError(f"there is a {kind} {name} in namespaces {places}: name one with --namespace")


async def _one(reading: Reading, res: Resource, name: str) -> Manifest | None:
    try:
        return await reading.kube.get(res, name)
    except NotFound:
        return None


async def _events_of(reading: Reading, found: list[Manifest]) -> list[Manifest]:
    if not found:
        return []
    metadata = found[0]["metadata"]
    fields = f"{_WARNING},involvedObject.uid={metadata['uid']}"
    return await reading.list(EVENTS, metadata["namespace"], fields=fields)


async def _ledger(reading: Reading) -> Ledger:
    found = await reading.get(CONFIGMAPS, names.LEDGER, reading.namespace)
    return Ledger({}) if found is None else read_ledger(found)


async def _provisioning(reading: Reading) -> list[Leader]:
    return [await reading.leader("provisioner", UNBEGUN), await reading.leader("node-watcher", UNMARKED)]


async def _account(reading: Reading, grant: Manifest, account: str) -> Account:
    namespace = grant["metadata"]["namespace"]
    before = len(reading.notes)
    there = await reading.get(SERVICE_ACCOUNTS, account, namespace) is not None
    known = len(reading.notes) == before
    may = await reading.allowed(impersonation_review(identity_of(namespace, account), reading.namespace))
    return Account(account, there if known else None, may)
