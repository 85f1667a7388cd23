"""``trellis status``: leaders, rollout, host groups, applications, Wasm pods, the bus and the API server.

In: flags. Out: a table or JSON, and exit status 1 if there is a problem. Called by the command line. Writes nothing.
Invariant: parts are read independently; a part that is unreachable or forbidden is a row with the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from trellis import names
from trellis.bus.errors import BusError
from trellis.bus.streams.stream_stats import stream_sizes
from trellis.events.subjects import NODE_WATCHER, PROVISIONER
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, KubeError, NotFound, Unauthorized, Unavailable
from trellis.kube.permissions import missing_right
from trellis.kube.resources import ENDPOINT_SLICES, HOST_CONFIGS, PODS, SECRET_GRANTS, SERVICES
from trellis.lattice.domain.service_views import SLICE_SELECTOR, view_service, view_slice
from trellis.read_model.explain.hosts import MANAGER as HOST_MANAGER
from trellis.read_model.explain.service import REFLECTOR
from trellis.read_model.reading.cluster import PERMISSIONS, Reading
from trellis.read_model.reading.explained import pending_cause, warned
from trellis.read_model.reading.leaders import read_claim, read_leadership
from trellis.read_model.reading.wasm_pods import read_wasm_pods
from trellis_cli.apps.row import NAME, UNKNOWN, read_applications
from trellis_cli.circuit_breaker.command import read_rows
from trellis_cli.common.errors import advice, describe_error, exit_on_error
from trellis_cli.common.gather import read_cluster, read_version
from trellis_cli.common.messages import EXIT_FAILED
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import DocumentOption, Format, NoHeadersOption, make_table, print_document, print_result
from trellis_cli.common.rollout_state import read_rollout
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.common.watch import Listed, Shown, View, WatchEventsOption, WatchOption, is_watch, watch_cluster
from trellis_cli.controllers.model import PART as CONTROLLERS
from trellis_cli.controllers.model import UNKNOWN as CONTROLLERS_UNKNOWN
from trellis_cli.controllers.table import read_controllers
from trellis_cli.explain.grant import BACKEND
from trellis_cli.status.reflected_services import ReflectedServices, counted, unreached
from trellis_cli.status.row import Part, with_leader
from trellis_cli.status.rows import (
    HOSTS,
    INSTALLATION,
    SECRETS,
    breakers_part,
    bus_part,
    claim_part,
    hosts_part,
    reflected_services_part,
    rollout_part,
    secrets_part,
    service_part,
    unknown_service,
)
from trellis_cli.status.served import list_or_row
from trellis_cli.status.wasm_pods import UNKNOWN as WASM_PODS_UNKNOWN
from trellis_cli.status.wasm_pods import WASM_PODS, wasm_pods_part, workload_parts
from trellis_cli.v2.row import PART as V2
from trellis_cli.v2.row import UNKNOWN as V2_UNKNOWN
from trellis_cli.v2.status import read_v2

LED: Final = tuple(name.replace("_", "-") for name in (NODE_WATCHER, PROVISIONER))
API_UNAVAILABLE: Final = "unknown while the API server is unreachable"
UNACCEPTED: Final = "unknown while the API server rejects the credentials"
_UNREAD: Final[Mapping[str, Mapping[str, Any]]] = {
    "rollout": {"in_progress": None, "halted": None, "counts": None, "causes": None, "shims": None},
    "circuit-breakers": {"open": None},
    NAME: UNKNOWN,
    "reflected-services": {"services": None, "without_endpoints": None, "unreached": None, "holder": None},
    HOSTS: {"groups": None, "hosts": None, "hosts_ready": None, "unhealthy": None, "holder": None},
    SECRETS: {"grants": None, "without_effect": None, "pods": None, "pods_ready": None},
    CONTROLLERS: CONTROLLERS_UNKNOWN,
}
"""Fields of each row if its data cannot be read."""
_MARKS: Final[Mapping[bool | None, tuple[str, str]]] = {
    True: ("yes", "green"),
    False: ("no", "bold red"),
    None: ("unknown", "yellow"),
}
"""Text and style of the column OK."""


@dataclass(frozen=True, slots=True)
class Status:
    """All parts, in display order."""

    kubernetes: Part
    services: tuple[Part, ...]
    rollout: Part
    breakers: Part
    hosts: Part
    applications: Part
    reflected_services: Part
    secrets: Part
    controllers: Part
    bus: Part
    wasm_pods: Part
    wasmcloud_v2: Part | None = None
    """None if the cluster has no wasmCloud v2."""
    workloads: Sequence[Part] = field(default=(), kw_only=True)
    """Workloads of Wasm pods with a problem; JSON has all in the row of Wasm pods."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """All rows."""
        kinds = (self.hosts, self.applications, self.reflected_services, self.secrets, self.controllers)
        other = () if self.wasmcloud_v2 is None else (self.wasmcloud_v2,)
        pods = (self.wasm_pods, *self.workloads)
        return (self.kubernetes, *self.services, self.rollout, self.breakers, *pods, *kinds, *other, self.bus)

    @property
    def ok(self) -> bool | None:
        """False if a part has a problem; None if none has one, but not everything was read."""
        found = {part.ok for part in self.parts}
        return False if False in found else None if None in found else True

    def document(self) -> dict[str, Any]:
        """Return the status for JSON."""
        return {
            "ok": self.ok,
            "kubernetes": self.kubernetes.document(),
            "services": [part.document() for part in self.services],
            "rollout": self.rollout.document(),
            "circuit_breakers": self.breakers.document(),
            "wasm_pods": self.wasm_pods.document(),
            "hosts": self.hosts.document(),
            "applications": self.applications.document(),
            "reflected_services": self.reflected_services.document(),
            "secrets": self.secrets.document(),
            "controllers": self.controllers.document(),
            "wasmcloud_v2": None if self.wasmcloud_v2 is None else self.wasmcloud_v2.document(),
            "bus": self.bus.document(),
        }


def status(  # noqa: PLR0913, PLR0917 - options of a command line
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    nats_url: Annotated[str | None, typer.Option(help="address of the bus [env: TRELLIS_NATS_URL]")] = None,
    output: DocumentOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
    watch: WatchOption = False,
    output_watch_events: WatchEventsOption = False,
) -> None:
    """Show the state of the installation, with causes.

    Ends with 1 if there is a problem. A part that this account is not permitted to read is unknown: `ok` is then
    null, and `unread` of the part names the missing permission. JSON: `ok`; `kubernetes {ok, problem, server,
    version}`; `services [{ok, problem, name, holder, renewed_seconds_ago}]`, with `installation`, the holder of the
    nodes; `rollout {ok, problem, in_progress, halted, counts, causes, shims}`; `circuit_breakers {ok, problem, open
    [rows of circuit-breaker status]}`; `wasm_pods {ok, problem, count, pods, pods_ready, states, workloads [{kind,
    namespace, name, runtime_class, shim, executor, desired, pods, ready, health, reason, message}]}`, the owners of
    pods with the RuntimeClass of a Shim; `hosts {ok, problem, groups, hosts, hosts_ready, unhealthy, causes,
    holder}`; `applications {ok, problem, count, phases, unhealthy [namespace/name], causes, holder}`;
    `reflected_services {ok, problem, services, without_endpoints [namespace/name], unreached, causes, holder}`, the
    Services of applications; `secrets {ok, problem, grants, without_effect, causes, pods, pods_ready}`;
    `controllers {ok, problem, count, states, not_ready [namespace/name], causes, holder}`; `wasmcloud_v2 {ok,
    problem, deployments, hosts, artifacts, unhealthy [kind/namespace/name], causes}`, null without wasmCloud v2;
    `bus {ok, problem, streams [{name, messages, bytes}], dead_letters}`. `causes` maps names to the cause that
    `trellis explain` prints. Unknown values are null.
    """
    with exit_on_error():
        watched = is_watch(watch=watch, events=output_watch_events)
        settings = client_settings(kubeconfig=kubeconfig, context=context, nats_url=nats_url)
        if watched:
            asyncio.run(_watch(settings, Shown(output, no_headers, output_watch_events)))
            return
        found = asyncio.run(read_cluster(settings, lambda kube: _look(kube, settings)))
        _show(found, output, no_headers=no_headers)
        if found.ok is False:
            raise SystemExit(EXIT_FAILED)


async def _watch(settings: ClientSettings, shown: Shown) -> None:
    async def read(kube: Kube) -> Listed[Part]:
        return Listed((await _look(kube, settings)).parts)

    view: View[Part] = View(
        key=lambda part: part.name,
        table=_table_of,
        document=lambda part: {"part": part.name} | part.document(),
        state=Part.state,
    )
    await watch_cluster(settings, read, view, shown)


async def _look(kube: Kube, settings: ClientSettings) -> Status:
    """Read all parts concurrently."""
    now = datetime.now(UTC)
    namespace = settings.namespace
    services, parts = (
        [*(_service(kube, name, namespace, now) for name in LED), _installation(kube, settings, now)],
        {
            "rollout": _rollout(kube, settings),
            "circuit-breakers": _breakers(kube, namespace),
            HOSTS: _hosts(kube, namespace),
            NAME: _applications(kube, namespace),
            "reflected-services": _reflected_services(kube, namespace),
            SECRETS: _secrets(kube, namespace),
            CONTROLLERS: read_controllers(kube, namespace),
        },
    )
    (kubernetes, bus, *rows), v2, (wasm_pods, workloads) = await asyncio.gather(
        asyncio.gather(
            _kubernetes(kube), _bus(settings), *services, *(_guarded(name, part) for name, part in parts.items())
        ),
        _v2(kube, namespace),
        _wasm_pods(kube, namespace),
    )
    led, rest = tuple(rows[: len(services)]), dict(zip(parts, rows[len(services) :], strict=True))
    return Status(
        kubernetes=kubernetes,
        services=led,
        rollout=rest["rollout"],
        breakers=rest["circuit-breakers"],
        hosts=rest[HOSTS],
        applications=rest[NAME],
        reflected_services=rest["reflected-services"],
        secrets=rest[SECRETS],
        controllers=rest[CONTROLLERS],
        wasmcloud_v2=v2,
        wasm_pods=wasm_pods,
        workloads=workloads,
        bus=bus,
    )


async def _guarded(name: str, part: Awaitable[Part]) -> Part:
    """Return a row; on failure one with the error, or with the missing permission."""
    try:
        return await part
    except KubeError as error:
        return _because(Part(name, "unknown", data=dict(_UNREAD[name])), error)


async def _v2(kube: Kube, namespace: str) -> Part | None:
    """Return the row of wasmCloud v2, None if the cluster has none."""
    try:
        return await read_v2(kube, namespace)
    except KubeError as error:
        return _because(Part(V2, "unknown", data=dict(V2_UNKNOWN)), error)


async def _wasm_pods(kube: Kube, namespace: str) -> tuple[Part, Sequence[Part]]:
    """Return the row of Wasm pods, and those of the workloads with a problem."""
    reading = Reading(kube, namespace)
    try:
        found = await read_wasm_pods(reading)
    except KubeError as error:
        return _because(Part(WASM_PODS, "unknown", data=dict(WASM_PODS_UNKNOWN)), error), ()
    return _with_notes(wasm_pods_part(found.snapshot, found.workloads), reading), workload_parts(found.workloads)


def _because(part: Part, error: KubeError) -> Part:
    """Return a row that was not read; errors that affect every row are only in the row of the API server."""
    if isinstance(error, Unavailable):
        return replace(part, problem=API_UNAVAILABLE)
    if isinstance(error, Unauthorized):
        return replace(part, problem=UNACCEPTED)
    if (right := missing_right(error)) is not None:
        return replace(part, unread=f"this account may not {right}: {advice(error)}")
    return replace(part, problem=describe_error(error))


def _with_notes(part: Part, reading: Reading) -> Part:
    """Return a row with the missing permissions, and the resources that are unreadable for another reason."""
    unread = [part.unread, *(line.text for line in reading.notes if line.about == PERMISSIONS)]
    problems = [part.problem, *(line.text for line in reading.notes if line.about != PERMISSIONS)]
    return replace(part, problem="; ".join(filter(None, problems)), unread="; ".join(filter(None, unread)))


async def _kubernetes(kube: Kube) -> Part:
    data: dict[str, Any] = {"server": kube.server, "version": None}
    try:
        version = await read_version(kube)
    except KubeError as error:
        return Part("kubernetes", kube.server, describe_error(error), data)
    return Part("kubernetes", f"{version} at {kube.server}", data=data | {"version": version})


async def _service(kube: Kube, name: str, namespace: str, now: datetime) -> Part:
    try:
        return service_part(name, await read_leadership(kube, name, namespace, now), namespace)
    except NotFound:
        return service_part(name, None, namespace)
    except KubeError as error:
        return _because(unknown_service(name, ""), error)


async def _installation(kube: Kube, settings: ClientSettings, now: datetime) -> Part:
    try:
        return claim_part(await read_claim(kube, settings.claim_namespace, now), settings.namespace)
    except KubeError as error:
        return _because(Part(INSTALLATION, "unknown", data={"name": INSTALLATION, "holder": None}), error)


async def _rollout(kube: Kube, settings: ClientSettings) -> Part:
    reading = Reading(kube, settings.namespace)
    installers = settings.installer_namespace
    rollout, pending = await asyncio.gather(read_rollout(reading, installers), pending_cause(reading, installers))
    return _with_notes(rollout_part(rollout, {name: line.text for name, line in pending.items()}), reading)


async def _breakers(kube: Kube, namespace: str) -> Part:
    return breakers_part(await read_rows(kube, namespace))


async def _hosts(kube: Kube, namespace: str) -> Part:
    reading = Reading(kube, namespace)
    groups = await list_or_row(kube, HOST_CONFIGS, HOSTS, _UNREAD[HOSTS])
    if isinstance(groups, Part):
        return groups
    leader = await reading.leader(HOST_MANAGER, "")
    return with_leader(hosts_part(groups or [], leader.holder), leader)


async def _applications(kube: Kube, namespace: str) -> Part:
    reading = Reading(kube, namespace)
    groups = await reading.list(HOST_CONFIGS)
    part = await read_applications(kube, namespace, groups if reading.knows(HOST_CONFIGS) else None)
    return _with_notes(part, reading)


async def _reflected_services(kube: Kube, namespace: str) -> Part:
    reading = Reading(kube, namespace)
    found, slices, groups, warnings, leader = await asyncio.gather(
        kube.list(SERVICES),
        reading.list(ENDPOINT_SLICES, labels=SLICE_SELECTOR),
        reading.list(HOST_CONFIGS),
        warned(reading, None),
        reading.leader(REFLECTOR, ""),
    )
    services = [view_service(item) for item in found.items]
    counts: ReflectedServices = counted(services, [view_slice(item) for item in slices], leader.holder)
    part = reflected_services_part(replace(counts, unreached=unreached(warnings, services, groups)))
    return _with_notes(with_leader(part, leader), reading)


async def _secrets(kube: Kube, namespace: str) -> Part:
    reading = Reading(kube, namespace)
    try:
        grants = await list_or_row(kube, SECRET_GRANTS, SECRETS, _UNREAD[SECRETS])
    except Forbidden as error:
        reading.lacks(error, SECRET_GRANTS)
        grants = []
    if isinstance(grants, Part):
        return grants
    backend = f"{names.LABEL_PART_OF}={names.PART_OF},app.kubernetes.io/component={BACKEND}"
    groups, pods = await asyncio.gather(reading.list(HOST_CONFIGS), reading.list(PODS, namespace, labels=backend))
    known = groups if reading.knows(HOST_CONFIGS) else None
    return _with_notes(secrets_part(grants or [], known, pods), reading)


async def _bus(settings: ClientSettings) -> Part:
    try:
        return bus_part(await stream_sizes(settings.nats_url, settings.nats_credentials))
    except BusError as error:
        return Part("bus", "unknown", describe_error(error), {"streams": None, "dead_letters": None})


def _show(found: Status, output: Format, *, no_headers: bool) -> None:
    if output.structured:
        print_document(output, found.document())
        return
    print_result(_table_of(found.parts), no_headers=no_headers)


def _table_of(parts: Sequence[Part]) -> Table:
    table = make_table("PART", "OK", "STATUS", fold={"STATUS"})
    for part in parts:
        text = "; ".join(filter(None, (part.text, part.problem, part.unread)))
        table.add_row(part.name, Text(*_MARKS[part.ok]), Text(text))
    return table
