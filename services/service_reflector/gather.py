"""The cache of service_reflector: host groups, pods, Services, slices, and applications of lattices.

In: views. Out: a frozen snapshot for ``decide``, and the keys that a change affects. Called by ``app`` and ``watches``.
Keys are ``namespace/application``. Invariant: unknown state of a lattice never counts as absent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from service_reflector.domain.ownership import HostGroups, Owner, Undecided, owner_of, recorded_groups, successors
from service_reflector.domain.service_options import ServiceOptions, options_of
from service_reflector.domain.snapshot import Claim, Preserved, Refused, Snapshot
from service_reflector.lattice_followers import LatticeFollowers
from service_reflector.timings import Timings
from trellis import names
from trellis.installer_api.redaction import redact_url
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.resources import NAMESPACES
from trellis.lattice.domain.cached_listeners import read_cached_listeners
from trellis.lattice.domain.group_views import GroupView, lattice_name
from trellis.lattice.domain.manifests import Application
from trellis.lattice.domain.preserved import read_preserved
from trellis.lattice.domain.provider_hosts import ProviderHosts
from trellis.lattice.domain.service_views import PodView, RouteView, ServiceView, SliceView
from trellis.provisioning.other_controllers import Controller


@dataclass(slots=True)
class Cache:
    """Caches of one leadership term.

    ``preserved_slices``: by key, the slices with the addresses of a Service that was deleted.
    ``deleted``: UIDs of Services that this service deleted but the watch still lists. ``published``: by key, then by
    Service, the published event as JSON. ``controller``: wasmcloud-operator, while it runs. ``groups_known``: the API
    server serves host groups. ``missing_since``: by lattice ID, the monotonic time since which no host group names it.
    ``unreadable``: by lattice ID, why it cannot be followed. ``preserved``: by Service, why it waits for an answer or a
    host group.
    """

    kube: Kube
    groups: dict[str, GroupView]
    services: dict[str, ServiceView]
    followers: LatticeFollowers
    elsewhere: tuple[str, ...] = ()
    remove_finalizers: bool = False
    timings: Timings = field(default_factory=Timings)
    groups_known: Callable[[], bool] = lambda: True
    by_lattice: dict[str, dict[str, GroupView]] = field(default_factory=dict)
    by_namespace: dict[str, dict[str, GroupView]] = field(default_factory=dict)
    pods: dict[str, dict[str, PodView]] = field(default_factory=dict)
    slices: dict[str, dict[str, SliceView]] = field(default_factory=dict)
    routes: dict[str, RouteView] = field(default_factory=dict)
    reflected: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    by_key: dict[str, set[str]] = field(default_factory=dict)
    by_annotated_lattice: dict[str, set[str]] = field(default_factory=dict)
    preserved_slices: dict[str, dict[str, SliceView]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    published: dict[str, dict[str, bytes]] = field(default_factory=dict)
    controller: Controller | None = None
    missing_since: dict[str, float] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    preserved: dict[str, Preserved] = field(default_factory=dict)

    @property
    def host_groups(self) -> HostGroups:
        """The host groups, as ``ownership`` reads them."""
        return HostGroups(self.groups_known, self.groups, self.by_lattice, self.by_namespace, self.grace_left)

    def grace_left(self, lattice_id: str) -> float:
        """Return the seconds for which the Services of a lattice without a host group stay."""
        since = self.missing_since.setdefault(lattice_id, time.monotonic())
        return max(0.0, since + self.timings.group_grace - time.monotonic())

    def waits_for_group(self, lattice_id: str) -> bool:
        """Return whether Services of a lattice stay for the grace period, because no host group decides on them."""
        found = self._of(lattice_id)
        return any(not any(successors(item, self.host_groups)) for item in found) and self.grace_left(lattice_id) > 0

    def homes(self, lattice_id: str) -> set[str]:
        """Return the namespaces of a lattice's groups."""
        return {group.namespace for group in self.by_lattice.get(lattice_id, {}).values()}

    def deployed(self, lattice_id: str) -> dict[str, Application]:
        """Return the known applications of a lattice by name."""
        comparison = self.followers.comparison(lattice_id)
        return comparison.applications.deployed() if comparison is not None else {}

    def keys_of(self, lattice_id: str, applications: Iterable[str] | None) -> Iterator[str]:
        """Yield the keys that changes of applications affect; None stands for every application of the lattice."""
        if applications is not None and "" in applications:
            applications = None  # the list is complete now, so absence is known, too
        homes, left = self.homes(lattice_id), self._left_to(lattice_id)
        if applications is None:
            applications = {*self.deployed(lattice_id), *(item.application for item in (*self._of(lattice_id), *left))}
            yield from self.preserved_slices
        for name in applications:
            places = homes | {self.services[key].namespace for key in self._reflected(lattice_id, name)}
            places |= {item.namespace for item in left if item.application == name}
            application = self._application(lattice_id, name)
            if application is not None and (requested := application.annotation(names.ANNOTATION_SERVICE_NAMESPACE)):
                places = places | {requested}
            yield from (f"{place}/{name}" for place in places)

    def _of(self, lattice_id: str) -> list[ServiceView]:
        return [self.services[key] for key in self.by_annotated_lattice.get(lattice_id, ()) if key in self.services]

    def _left_to(self, lattice_id: str) -> list[ServiceView]:
        """Return the Services of lattices without a host group on which this lattice decides."""
        found = [
            item for former in self.by_annotated_lattice if former not in self.by_lattice for item in self._of(former)
        ]
        return [
            item for item in found if any(group.lattice == lattice_id for group in successors(item, self.host_groups))
        ]

    def keys_left(self, groups: Collection[str]) -> Iterator[str]:
        """Yield the keys of Services that record one of these groups and whose lattice has no host group."""
        for lattice_id in self.by_annotated_lattice:
            if lattice_id not in self.by_lattice:
                for item in self._of(lattice_id):
                    if any(group in groups for group in recorded_groups(item)):
                        yield f"{item.namespace}/{item.application}"

    def _application(self, lattice_id: str, name: str) -> Application | None:
        comparison = self.followers.comparison(lattice_id)
        known = comparison.applications.known.get(name) if comparison is not None else None
        return known.application if known is not None else None

    def all_keys(self) -> set[str]:
        """Return every key to reconcile."""
        keys = {key for lattice_id in self.followers.lattice_ids for key in self.keys_of(lattice_id, None)}
        ours = (service for service in self.services.values() if service.application or service.of_other_controller)
        keys |= {f"{item.namespace}/{item.application or item.name}" for item in ours}
        return keys | set(self.published) | set(self.preserved_slices)

    def count(self) -> int:
        """Return the number of Services of applications."""
        return sum(map(len, self.by_annotated_lattice.values()))

    def services_of(self, key: str) -> list[ServiceView]:
        """Return the Services of one application in one namespace."""
        return [self.services[item] for item in self.by_key.get(key, ()) if item in self.services]

    def groups_required_by(self) -> str | None:
        """Return why the host groups have to be known, None while nothing names one."""
        count = self.count()
        return (
            f"{count} Services refer to host groups, and none is deleted until the host groups are known"
            if count
            else None
        )

    def preserved_text(self) -> str:
        """Return, for readiness, the number of Services that wait for an answer or a host group, "" if none does.

        While host groups are unknown, all of them wait, and ``groups_required_by`` reports that.
        """
        if not self.groups_known():
            return ""
        first = next(iter(self.preserved.values()), None)
        return f"{len(self.preserved)}, the first: {first.message}" if first is not None else ""

    def _reflected(self, lattice_id: str, name: str) -> list[str]:
        return [key for key in self.reflected.get((lattice_id, name), ()) if key in self.services]

    async def snapshot(self, key: str) -> Snapshot:
        """Return the input of a decision about one application's Services in one namespace.

        Raises:
            KubeError: the namespace could not be read.
        """
        namespace, _, name = key.partition("/")
        claims, refused = self._claims(namespace, name)
        services = self._services(namespace, name, claims)
        groups = self.host_groups
        found = {
            service.name: owner_of(service, groups, self._answer)
            for service in services.values()
            if service.application
        }
        unknown = [services[item] for item, owner in found.items() if owner.undecided is not None]
        claims += [self._remembered(item) for item in unknown]
        preserved = self._preserved(services, found)
        pieces = self.preserved_slices.get(key, {}).values()
        owners = self._slice_owners(services, claims) | {item.service for item in pieces}
        terminating = any(service.deleting for service in services.values()) and await self._is_deleting(namespace)
        return Snapshot(
            namespace,
            name,
            tuple(claims),
            tuple(refused),
            services,
            {item: tuple(self.slices.get(f"{namespace}/{item}", {}).values()) for item in owners},
            {
                service: route
                for service in services
                if (route := self.routes.get(f"{namespace}/{service}")) is not None
            },
            frozenset(item.lattice for item in unknown),
            tuple(
                item
                for item in pieces
                if (of := read_preserved(item.preserved)) and self._unknown(of.lattice, of.application)
            ),
            sure=self.groups_known()
            and all(
                self._complete(lattice_id) for lattice_id in self.by_lattice if namespace in self.homes(lattice_id)
            ),
            terminating=terminating,
            remove_finalizers=self.remove_finalizers,
            owners={item: owner.lattice for item, owner in found.items()},
            preserved=preserved,
            look_again=min(
                (self.grace_left(item.service.lattice) for item in preserved if item.reason == Undecided.GROUP_MISSING),
                default=None,
            ),
        )

    def _slice_owners(self, services: Mapping[str, ServiceView], claims: Iterable[Claim]) -> set[str]:
        """Return the names of Services that may have slices, also of those that do not exist."""
        found = set(services)
        for claim in claims:
            name = claim.application.name
            found |= {names.service_name(name), names.second_service_name(name, claim.lattice)}
        return found

    def _services(self, namespace: str, name: str, claims: Iterable[Claim]) -> dict[str, ServiceView]:
        """Return the Services of an application and those with one of its names; edited ones lost their annotations."""
        plain = names.service_name(name)
        second = (f"{namespace}/{names.second_service_name(name, claim.lattice)}" for claim in claims)
        edited = [key for key in second if (item := self.services.get(key)) is not None and item.of_other_controller]
        keys = {*self.by_key.get(f"{namespace}/{name}", ()), f"{namespace}/{plain}", *edited}
        return {
            item.name: item
            for key in sorted(keys)
            if (item := self.services.get(key)) is not None
            and item.application in {name, ""}
            and item.uid not in self.deleted
        }

    def _claims(self, namespace: str, name: str) -> tuple[list[Claim], list[Refused]]:
        claims: list[Claim] = []
        refused: list[Refused] = []
        having = {
            lattice_id: found
            for lattice_id in self.followers.lattice_ids
            if (found := self._application(lattice_id, name)) is not None
        }
        for lattice_id in sorted(having, key=self._seniority):
            application = having[lattice_id]
            options, homes = options_of(application), self.homes(lattice_id)
            group = self._group(lattice_id, namespace)
            if options.namespace and options.namespace not in {*homes, *self.elsewhere}:
                refused += [_refusal(options, application, group)] if group is not None else []
            elif namespace == options.namespace or (not options.namespace and namespace in homes):
                claims.append(
                    Claim(
                        lattice_id,
                        application,
                        options,
                        self._pods(lattice_id),
                        self.followers.hosts(lattice_id),
                        self._running(lattice_id),
                        group,
                        groups=tuple(sorted(self.by_lattice.get(lattice_id, ()))),
                    )
                )
        return claims, refused

    def _running(self, lattice_id: str) -> ProviderHosts:
        comparison = self.followers.comparison(lattice_id)
        return comparison.running if comparison is not None else ProviderHosts()

    def _remembered(self, service: ServiceView) -> Claim:
        """Return the claim that a Service records in its annotations."""
        lattice_id, annotations = service.lattice, service.manifest().get("annotations") or {}
        listeners = read_cached_listeners(annotations.get(names.ANNOTATION_CACHED_LISTENERS, ""))
        application = Application(service.application, listeners=listeners)
        return Claim(
            lattice_id,
            application,
            ServiceOptions(),
            self._pods(lattice_id, () if lattice_id in self.by_lattice else recorded_groups(service)),
            self.followers.hosts(lattice_id),
            self._running(lattice_id),
            self._group(lattice_id, service.namespace),
            remembered=True,
        )

    def _seniority(self, lattice_id: str) -> tuple[str, str]:
        """Return the sort key of a lattice: that of the oldest host group comes first."""
        return min((group.created for group in self.by_lattice.get(lattice_id, {}).values()), default="~"), lattice_id

    def _group(self, lattice_id: str, namespace: str) -> GroupView | None:
        """Return the host group for Events: the oldest, in the namespace if there is one."""
        groups = sorted(
            self.by_lattice.get(lattice_id, {}).values(),
            key=lambda item: (item.namespace != namespace, item.created, item.key),
        )
        return groups[0] if groups else None

    def _pods(self, lattice_id: str, recorded: tuple[str, ...] = ()) -> tuple[PodView, ...]:
        """Return the pods of a lattice's hosts: of its groups, and of groups in their namespaces that report to it.

        A group that was given another address of the same lattice stays on it, as its heartbeats show.
        """
        groups = (*self.by_lattice.get(lattice_id, {}), *recorded)
        pods = [pod for key in groups for pod in self.pods.get(key, {}).values()]
        name, reporting = lattice_name(lattice_id), self.followers.hosts(lattice_id)
        for place in self.homes(lattice_id) if reporting else ():
            for key, group in self.by_namespace.get(place, {}).items():
                if key not in groups and lattice_name(group.lattice) == name:
                    pods += [pod for pod in self.pods.get(key, {}).values() if pod.name in reporting]
        return tuple(pods)

    def _complete(self, lattice_id: str) -> bool:
        comparison = self.followers.comparison(lattice_id)
        return comparison is not None and comparison.applications.complete

    def _unknown(self, lattice_id: str, application: str) -> bool:
        """Return whether it is unknown if a lattice deploys an application; without a group: if groups are unknown."""
        return (
            self._answer(lattice_id, application) is None if lattice_id in self.by_lattice else not self.groups_known()
        )

    def _answer(self, lattice_id: str, application: str) -> bool | None:
        """Return whether a lattice has an application deployed, None while it has not answered."""
        comparison = self.followers.comparison(lattice_id)
        if comparison is None:
            return None
        known = comparison.applications.known.get(application)
        if known is not None and known.application is not None:
            return True
        return False if comparison.applications.absent(application) else None

    def _preserved(self, services: Mapping[str, ServiceView], owners: Mapping[str, Owner]) -> tuple[Preserved, ...]:
        """Return the Services that wait for an answer or a host group, with the report on each."""
        found: list[Preserved] = []
        for name, owner in owners.items():
            item = services[name]
            self.preserved.pop(item.key, None)
            if (preserved := self._preserved_service(item, owner)) is not None:
                self.preserved[item.key] = preserved
                found.append(preserved)
        return tuple(found)

    def _preserved_service(self, service: ServiceView, owner: Owner) -> Preserved | None:
        lattice = lattice_name(service.lattice)
        match owner.undecided:
            case Undecided.GROUP_INVALID:
                groups = tuple(group for group in owner.groups if not group.lattice)
                reason = f"the spec of host group {groups[0].key} is invalid, so it names no lattice"
            case Undecided.LATTICE_UNREACHABLE:
                groups = tuple(group for group in owner.groups if self._trouble(group.lattice))
                if not groups:
                    return None  # the query is in progress
                reason = f"host group {groups[0].key} has another lattice: {self._trouble(groups[0].lattice)}"
            case Undecided.GROUP_MISSING:
                groups, at = (), self.timings.group_grace
                reason = (
                    f"no host group names lattice {lattice}: they are deleted unless one is created within {at:.0f} s"
                )
            case _:
                return None
        message = f"Services of applications on lattice {lattice} stay as they are: {reason}"
        return Preserved(service, owner.undecided, message, groups)

    def _trouble(self, lattice_id: str) -> str:
        """Return why the lattice of a host group does not answer, "" while no error is known."""
        reason = self.unreadable.get(lattice_id) or self.followers.trouble(lattice_id)
        group = self._group(lattice_id, "")
        if not reason or group is None or group.spec is None:
            return reason
        return f"{redact_url(group.spec.nats_address)}: {reason}"

    async def _is_deleting(self, namespace: str) -> bool:
        try:
            found = await self.kube.get(NAMESPACES, namespace)
        except NotFound:
            return True
        return bool(found["metadata"].get("deletionTimestamp"))


def _refusal(options: ServiceOptions, application: Application, group: GroupView) -> Refused:
    message = (
        f"application {application.name} requests its Service in namespace {options.namespace}, where its lattice has "
        f"no host group: change annotation {names.ANNOTATION_SERVICE_NAMESPACE}, or add the namespace to "
        "TRELLIS_SERVICE_NAMESPACES"
    )
    return Refused("NamespaceNotAllowed", message, group)
