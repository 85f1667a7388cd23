"""Reads the input of the pages of ``trellis explain``, one function per kind.

In: a reader, a name. Out: the page. Called by ``trellis explain`` and by the console. Writes nothing.
Invariant: the requested kind must be readable; a page names everything else that could not be read.
"""

from __future__ import annotations

import asyncio
from typing import Final

from trellis import names
from trellis.kube.errors import Forbidden
from trellis.kube.resources import (
    APPLICATIONS,
    CONFIGMAPS,
    ENDPOINT_SLICES,
    EVENTS,
    HOST_CONFIGS,
    JOBS,
    NODES,
    PODS,
    SERVICES,
    SHIMS,
    WASM_CONTROLLERS,
    Manifest,
)
from trellis.lattice.domain.group_views import view_group
from trellis.lattice.domain.service_views import POD_SELECTOR, SLICE_SELECTOR, view_pod, view_service, view_slice
from trellis.provisioning.ledger import Ledger, read_ledger
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.reasons import NODE_UPDATE_REFUSED, Reason
from trellis.provisioning.shim_status import read_status
from trellis.provisioning.shims import view_shim
from trellis.provisioning.views import INSTALLER_JOBS
from trellis.read_model.errors import AnswerError
from trellis.read_model.explain.application import (
    MANAGER,
    AppSnapshot,
    explain_application,
    explain_no_application,
    is_named,
)
from trellis.read_model.explain.controller import SUBJECT as CONTROLLER
from trellis.read_model.explain.controller import explain_controller
from trellis.read_model.explain.hosts import MANAGER as HOST_MANAGER
from trellis.read_model.explain.hosts import SUBJECT as GROUP
from trellis.read_model.explain.hosts import explain_group
from trellis.read_model.explain.job import pending_causes, refused_by_node, unlabelled_by_node
from trellis.read_model.explain.node import SUBJECT as NODE
from trellis.read_model.explain.node import NodeSnapshot, explain_node
from trellis.read_model.explain.page import Explanation, Leader, Line
from trellis.read_model.explain.service import REFLECTOR, ServiceSnapshot, Warned, explain_no_service, explain_service
from trellis.read_model.explain.shim import SUBJECT as SHIM
from trellis.read_model.explain.shim import ShimSnapshot, explain_shim, stopped_shims
from trellis.read_model.explain.subject import Beside
from trellis.read_model.reading.applications import read_apps
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained_v2 import v2_missing_service_page, v2_service_page
from trellis.read_model.reading.find import absence, find, listed, one_place, unreadable
from trellis.read_model.tables.controllers import HOST
from trellis.read_model.tables.nodes import installs_kwasm, is_unserved

UNBEGUN = "no installation starts on any node"
UNMARKED = "no node is labeled"
KINDS: Final = ("node", "shim", "hostgroup", "application", "service", "controller")
"""Kinds that have a page here."""
_WARNING = "type=Warning"
_APART = "Kubernetes and wadm are not synced"


async def page_of(reading: Reading, installers: str, kind: str, name: str, namespace: str | None) -> Explanation:
    """Return the page of an object; ``kind`` is one of :data:`KINDS`, ``installers`` the installer Jobs' namespace.

    Raises:
        ObjectNotFoundError: the object does not exist; its page shows similar ones.
        AnswerError: several namespaces have one, or the kind is not defined in the cluster.
        KubeError: the object is forbidden, or the API server is unavailable.
    """
    match kind:
        case "node":
            return await node_page(reading, installers, name)
        case "shim":
            return await shim_page(reading, installers, name)
        case "hostgroup":
            return await group_page(reading, name, namespace)
        case "application":
            return await application_page(reading, name, namespace)
        case "service":
            return await service_page(reading, name, namespace)
        case "controller":
            return await controller_page(reading, name, namespace)
        case _:
            raise AnswerError(f"no page for kind {kind}; kinds: {', '.join(KINDS)}")


async def node_page(reading: Reading, installers: str, name: str) -> Explanation:
    """Return the page of a node; ``installers``: namespace of the installer Jobs."""
    node = await find(reading, NODES, NODE, name)
    uid = node["metadata"]["uid"]
    jobs, events, pods, shims, ledger, leaders = await asyncio.gather(
        reading.list(JOBS, installers, labels=f"{INSTALLER_JOBS},{names.LABEL_NODE_UID}={uid}"),
        _events_of(reading, node),
        reading.list(PODS, installers, fields=f"spec.nodeName={name}"),
        reading.list(SHIMS),
        _ledger(reading),
        _provisioning(reading),
    )
    if jobs:
        events += await reading.list(EVENTS, installers, fields=_WARNING)
    views, beside = [view_shim(shim) for shim in shims], Beside(leaders, events, reading.notes)
    statuses = {view.name: read_status(item) for view, item in zip(views, shims, strict=True)}
    stopped = stopped_shims(shims)
    unread = reading.reasons(SHIMS, JOBS, CONFIGMAPS)
    kwasm = is_unserved(view_node(node), views, kwasm=False) and await _installs_kwasm(reading, ledger)
    return explain_node(
        NodeSnapshot(node, installers, jobs, pods, views, stopped, statuses, ledger, beside, unread, kwasm)
    )


async def _installs_kwasm(reading: Reading, ledger: Ledger) -> bool:
    """Return whether an installer image of KWasm is in use, or may be."""
    nodes = await reading.list(NODES)
    return installs_kwasm(ledger, map(view_node, nodes)) or not reading.knows(NODES)


async def shim_page(reading: Reading, installers: str, name: str) -> Explanation:
    """Return the page of a Shim; ``installers``: namespace of the installer Jobs."""
    shim = await find(reading, SHIMS, SHIM, name)
    nodes, shims, causes, events, ledger, leaders = await asyncio.gather(
        reading.list(NODES),
        reading.list(SHIMS),
        pending_cause(reading, installers),
        _events_of(reading, shim),
        _ledger(reading),
        _provisioning(reading),
    )
    views, beside = [view_node(node) for node in nodes], Beside(leaders, events, reading.notes)
    every = [view_shim(item) for item in shims]
    return explain_shim(ShimSnapshot(shim, views, every, causes, ledger, beside, reading.reasons(NODES)))


async def pending_cause(reading: Reading, installers: str) -> dict[str, Line]:
    """Return the causes that stop installer Jobs, by the name of their node."""
    jobs, pods, events, jobs_refused, pods_refused, unlabelled = await asyncio.gather(
        reading.list(JOBS, installers, labels=INSTALLER_JOBS),
        reading.list(PODS, installers, labels=f"{names.LABEL_JOB}=true"),
        reading.list(EVENTS, installers, fields=_WARNING),
        reading.list(EVENTS, None, fields=f"{_WARNING},reason={Reason.JOB_REFUSED}"),
        reading.list(EVENTS, None, fields=f"{_WARNING},reason={Reason.INSTALLER_REFUSED}"),  # between two attempts
        reading.list(EVENTS, None, fields=f"{_WARNING},reason={NODE_UPDATE_REFUSED}"),
    )
    refused = [*jobs_refused, *pods_refused]
    nodes = [view_node(item) for item in await reading.list(NODES)] if refused else []
    causes = refused_by_node(refused, jobs, nodes, installers) | pending_causes(jobs, pods, events)
    return causes | unlabelled_by_node(unlabelled, jobs)


async def group_page(reading: Reading, name: str, namespace: str | None) -> Explanation:
    """Return the page of a host group."""
    found = await find(reading, HOST_CONFIGS, GROUP, name, namespace)
    return explain_group(found, await _beside(reading, found, HOST_MANAGER, "its spec is not applied"))


async def controller_page(reading: Reading, name: str, namespace: str | None) -> Explanation:
    """Return the page of a WasmController."""
    found = await find(reading, WASM_CONTROLLERS, CONTROLLER, name, namespace)
    return explain_controller(found, await _beside(reading, found, HOST, "it is not called"))


async def service_page(reading: Reading, name: str, namespace: str | None) -> Explanation:
    """Return the page of a Service; of several with the name, of one that reflects an application."""
    found = await listed(reading, SERVICES, namespace, fields=f"metadata.name={name}")
    views = sorted(map(view_service, found), key=lambda item: (not item.application, item.key))
    one_place("Service", name, {view.namespace for view in views if view.application})
    own = next((item for item in found if views and item["metadata"]["uid"] == views[0].uid), None)
    if own is None:
        page = await v2_missing_service_page(reading, name, namespace)
    else:
        page = None if views[0].application else await v2_service_page(reading, own)
    if page is not None:
        return page
    warnings, leader = await asyncio.gather(
        warned(reading, namespace), reading.leader(REFLECTOR, "endpoints are not updated")
    )
    if own is None:
        there = await absence(reading, SERVICES, name, namespace)
        return explain_no_service((name, namespace), there, warnings, Beside([leader], notes=reading.notes))
    slices, groups, pods, events = await asyncio.gather(
        reading.list(ENDPOINT_SLICES, namespace, labels=SLICE_SELECTOR),
        reading.wide(HOST_CONFIGS, namespace),
        reading.wide(PODS, namespace, labels=POD_SELECTOR),
        _events_of(reading, own),
    )
    snapshot = ServiceSnapshot(
        views[0],
        [view_slice(item) for item in slices],
        None if HOST_CONFIGS in reading.unserved else [view_group(group) for group in groups],
        [view_pod(pod) for pod in pods],
        warnings,
        Beside([leader], events, reading.notes),
    )
    return explain_service(snapshot)


async def application_page(reading: Reading, name: str, namespace: str | None) -> Explanation:
    """Return the page of an Application."""
    own = [app for app in await _apps(reading, namespace) if is_named(app, name)]
    one_place("Application", name, {item["metadata"]["namespace"] for item in own})
    if not own:
        leader = await reading.leader(MANAGER, _APART)
        there = await absence(reading, APPLICATIONS, name, namespace)
        return explain_no_application(name, namespace, there, Beside([leader], notes=reading.notes))
    groups, services, warnings, beside = await asyncio.gather(
        reading.list(HOST_CONFIGS, namespace),
        reading.list(SERVICES, namespace),
        warned(reading, namespace),
        _beside(reading, own[0], MANAGER, _APART),
    )
    views = [view_service(service) for service in services]
    return explain_application(
        AppSnapshot(own[0], groups if reading.knows(HOST_CONFIGS) else None, views, warnings, beside)
    )


async def warned(reading: Reading, namespace: str | None) -> list[Warned]:
    """Return the warnings about host groups in all namespaces, or in one if only that is permitted."""
    about = f"{_WARNING},involvedObject.kind={HOST_CONFIGS.kind}"
    found = [view_warning(item) for item in await reading.wide(EVENTS, namespace, fields=about)]
    return [item for item in found if item.group]


def view_warning(event: Manifest) -> Warned:
    """Return the view of an Event; only a warning about a host group has a group."""
    about: Manifest = event.get("involvedObject") or {}
    fits = event.get("type") == "Warning" and about.get("kind") == HOST_CONFIGS.kind
    group = f"{about.get('namespace', '')}/{about.get('name', '')}" if fits else ""
    return Warned(group, str(event.get("reason") or ""), str(event.get("message") or ""))


async def _apps(reading: Reading, namespace: str | None) -> list[Manifest]:
    try:
        return await read_apps(reading.kube, namespace)
    except Forbidden as error:
        raise unreadable(error, namespace) from None


async def _beside(reading: Reading, found: Manifest, service: str, otherwise: str) -> Beside:
    leader, events = await asyncio.gather(reading.leader(service, otherwise), _events_of(reading, found))
    return Beside([leader], events, reading.notes)


async def _events_of(reading: Reading, found: Manifest) -> list[Manifest]:
    # Events about cluster-scoped objects are in a namespace that their author chose.
    metadata = found["metadata"]
    fields = f"{_WARNING},involvedObject.uid={metadata['uid']}"
    return await reading.list(EVENTS, metadata.get("namespace"), fields=fields)


async def _ledger(reading: Reading) -> Ledger:
    found = await reading.get(CONFIGMAPS, names.LEDGER, reading.namespace)
    return Ledger({}) if found is None else read_ledger(found)


async def _provisioning(reading: Reading) -> list[Leader]:
    return [await reading.leader("provisioner", UNBEGUN), await reading.leader("node-watcher", UNMARKED)]
