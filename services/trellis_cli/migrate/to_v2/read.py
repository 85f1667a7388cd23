"""Reads applications of wasmCloud v1, and converts them.

In: a connection, and for ``--from-wadm`` the NATS of each lattice. Out: conversions, and lattices that did not answer.
Called by ``to_v2.command``; writes nothing. Invariants: values of Secrets of applications are not read; a list that
fails is an error, never an empty list; an unreachable lattice does not hide the other ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from secrets_backend.domain.decide import view_grant
from secrets_backend.settings import Settings
from trellis import names
from trellis.config.settings import load
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, KubeError
from trellis.kube.resources import SECRET_GRANTS, SERVICES, Manifest
from trellis.lattice.connection.lattice_connection import NatsUnavailableError
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.domain.models import Model
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.replies import WadmRefusedError
from trellis.lattice.domain.service_views import ServiceView, view_service
from trellis.lattice.wadm.client import Wadm
from trellis.read_model.reading.applications import read_apps
from trellis.read_model.reading.find import namespace_is_missing
from trellis.read_model.reading.served import list_served
from trellis.read_model.tables.apps import application_of
from trellis_cli.apps.ask import NoLatticeError, address_of, asking, by_lattice, group_of, name_of, read_groups
from trellis_cli.common.errors import CommandError, describe_error
from trellis_cli.migrate.model.to_v2.convert import Environment, Source, convert
from trellis_cli.migrate.model.to_v2.report import Conversion
from trellis_cli.secrets.model import RuleInputs, connection_grant_of

_ASKED_AT_ONCE: Final = 16
_CANNOT: Final = (NatsUnavailableError, LatticeDataError, WadmRefusedError, NoLatticeError, KubeError)
_UNDEPLOYED: Final = "Undeployed"


@dataclass(frozen=True, slots=True)
class Found:
    """The conversions, by namespace and application. ``services``: Services of v1; ``unread``: lattices with errors."""

    conversions: tuple[Conversion, ...]
    services: tuple[ServiceView, ...]
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grants:
    """Grants of secrets: host groups, SecretGrants, and the settings of secrets_backend; None if not readable."""

    groups: Sequence[GroupView] = ()
    rules: Sequence[Manifest] | None = None
    settings: Settings = field(default_factory=Settings)

    def of(self, namespace: str, lattice: str) -> RuleInputs | None:
        """Return the rules for the secrets of an application, None if they are unknown."""
        if self.rules is None:
            return None
        try:
            group = group_of(self.groups, namespace, lattice)
        except NoLatticeError:
            return None
        connection = connection_grant_of(group, self.groups, [view_grant(item) for item in self.rules])
        return RuleInputs(connection, None, frozenset(self.settings.secrets_users), self.settings.secrets_backend)


async def read(kube: Kube, namespace: str | None, nats: str | None, *, from_wadm: bool) -> Found:
    """Return the conversions of a namespace, or of all.

    Raises:
        AnswerError: the kind Application is not defined, or not served, or the namespace does not exist.
        KubeError: Applications, host groups or Services cannot be read.
    """
    views = tuple(map(view_service, (await kube.list(SERVICES, namespace)).items))
    reflected: dict[str, set[str]] = {}
    for view in views:
        if view.application or view.of_other_controller:
            reflected.setdefault(view.namespace, set()).add(view.name)
    grants, notes = await _grants(kube, namespace)
    if from_wadm:
        sources, unread = await _from_wadm(kube, namespace, nats, grants)
    else:
        sources, unread = [_of_object(item) for item in await read_apps(kube, namespace)], []
    if namespace is not None and not sources and await namespace_is_missing(kube, namespace):
        raise CommandError(f"namespace {namespace} does not exist")
    applications: dict[str, set[str]] = {}
    for source, _ in sources:
        applications.setdefault(source.namespace, set()).add(names.service_name(source.name))

    def environment(namespace: str, lattice: str) -> Environment:
        return Environment(
            grants.of(namespace, lattice),
            frozenset(reflected.get(namespace, ())),
            frozenset(applications[namespace]),
            grants.settings.secrets_backend,
        )

    found = [convert(source, environment(source.namespace, lattice)) for source, lattice in sources]
    ordered = sorted(found, key=lambda item: (item.namespace, item.application))
    return Found(tuple(ordered), views, tuple(unread), tuple(notes))


async def _grants(kube: Kube, namespace: str | None) -> tuple[Grants, list[str]]:
    """Return the grants of secrets; without the permission to read all of them, they are unknown."""
    settings = load(Settings)
    try:
        groups, rules = await asyncio.gather(read_groups(kube), list_served(kube, SECRET_GRANTS))
    except Forbidden as error:
        groups = await read_groups(kube, namespace)
        return Grants(groups, None, settings), [f"grants of secrets are unknown: {describe_error(error)}"]
    return Grants(groups, rules or (), settings), []


def _of_object(item: Manifest) -> tuple[Source, str]:
    """Return the source of an Application of Kubernetes, and its lattice, "" if its namespace has one only."""
    metadata = item["metadata"]
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    undeployed = annotations.get(names.ANNOTATION_UNDEPLOY) == names.TRUE
    phase = (item.get("status") or {}).get("phase")
    lattice = str((metadata.get("labels") or {}).get(names.LABEL_LATTICE) or "")
    deployed = not undeployed and phase != _UNDEPLOYED
    return Source(item, application_of(metadata), metadata["namespace"], deployed), lattice


async def _from_wadm(
    kube: Kube, namespace: str | None, nats: str | None, grants: Grants
) -> tuple[list[tuple[Source, str]], list[str]]:
    """Return the applications of the lattices of host groups, and the lattices that could not be read."""
    sources: list[tuple[Source, str]] = []
    unread: list[str] = []
    for groups in by_lattice(grants.groups).values():
        group = _group_in(groups, namespace)
        if group is None:
            continue
        try:
            async with asking(await address_of(kube, group, nats)) as wadm:
                sources += [(source, name_of(group)) for source in await _models(wadm, group.namespace)]
        except _CANNOT as error:
            unread.append(f"lattice {name_of(group)}: {describe_error(error)}")
    return sources, unread


def _group_in(groups: Iterable[GroupView], namespace: str | None) -> GroupView | None:
    """Return the host group that gives the namespace of a lattice's workloads: a marked one, else the oldest."""
    there = [group for group in groups if namespace in {None, group.namespace}]
    homes = [group for group in there if group.home]
    return next(iter((*homes, *there)), None)


async def _models(wadm: Wadm, namespace: str) -> list[Source]:
    """Return the deployed version of each application of a lattice, or the newest one."""
    gate = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def source(model: Model) -> Source | None:
        async with gate:
            manifest = await wadm.get(model.name, model.deployed or model.version)
        return None if manifest is None else Source(dict(manifest), model.name, namespace, bool(model.deployed))

    found = await asyncio.gather(*map(source, await wadm.models()))
    return [item for item in found if item is not None]
