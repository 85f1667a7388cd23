"""What service_reflector knows: groups, pods, Services and slices by their informers, applications by their lattices.

In: views. Out: a frozen snapshot for ``decide``, and which keys a change concerns. Called by ``app`` and ``watch``.
Keys are ``namespace/application``. Invariant: what is not known of a lattice is not taken for not being there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from service_reflector.following import Following
from service_reflector.keeping import read_kept
from service_reflector.snapshot import Claim, Refused, Snapshot
from service_reflector.wishes import Wish, wish_of
from trellis import names
from trellis.events.services import ServiceReflected
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.resources import NAMESPACES
from trellis.lattice.group_views import GroupView
from trellis.lattice.manifests import Application
from trellis.lattice.reach import read_reach
from trellis.lattice.running import Running
from trellis.lattice.service_views import PodView, RouteView, ServiceView, SliceView
from trellis.peers import Controller


@dataclass(slots=True)
class Known:
    """What is remembered during a term. ``kept``: slices by key for whose Service something is kept.

    ``gone``: uids of Services that we deleted and that are still seen. ``said``: by Service what the bus was told.
    ``controller``: of wasmcloud-operator, while it runs.
    """

    kube: Kube
    groups: Mapping[str, GroupView]
    services: Mapping[str, ServiceView]
    following: Following
    elsewhere: tuple[str, ...] = ()
    let_go: bool = False
    by_lattice: dict[str, dict[str, GroupView]] = field(default_factory=dict)
    pods: dict[str, dict[str, PodView]] = field(default_factory=dict)
    slices: dict[str, dict[str, SliceView]] = field(default_factory=dict)
    routes: Mapping[str, RouteView] = field(default_factory=dict)
    mirrors: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    by_key: dict[str, set[str]] = field(default_factory=dict)
    kept: dict[str, dict[str, SliceView]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    said: dict[str, ServiceReflected] = field(default_factory=dict)
    controller: Controller | None = None

    def homes(self, mark: str) -> set[str]:
        """Return the namespaces of a lattice's groups."""
        return {group.namespace for group in self.by_lattice.get(mark, {}).values()}

    def deployed(self, mark: str) -> dict[str, Application]:
        """Return a lattice's applications by name, as far as they are known."""
        comparison = self.following.comparison(mark)
        return comparison.applications.deployed() if comparison is not None else {}

    def keys_of(self, mark: str, applications: Iterable[str] | None) -> Iterator[str]:
        """Yield the keys that news of applications concern; None is every one of the lattice."""
        if applications is not None and "" in applications:
            applications = None  # what is missing among all of them is known now
        homes = self.homes(mark)
        if applications is None:
            applications = {*self.deployed(mark), *(name for of, name in self.mirrors if of == mark)}
            yield from self.kept
        for name in applications:
            places = homes | {self.services[key].namespace for key in self._mirrors(mark, name)}
            application = self._application(mark, name)
            if application is not None and (asked := application.annotation(names.ANNOTATION_SERVICE_NAMESPACE)):
                places = places | {asked}
            yield from (f"{place}/{name}" for place in places)

    def _application(self, mark: str, name: str) -> Application | None:
        comparison = self.following.comparison(mark)
        known = comparison.applications.known.get(name) if comparison is not None else None
        return known.application if known is not None else None

    def all_keys(self) -> set[str]:
        """Return every key there is something to decide about."""
        keys = {key for mark in self.following.marks for key in self.keys_of(mark, None)}
        keys |= {f"{one.namespace}/{one.application or one.name}" for one in self._ours()}
        return keys | self._keys_said() | set(self.kept)

    def _ours(self) -> list[ServiceView]:
        return [one for one in self.services.values() if one.application or one.peers]

    def _keys_said(self) -> set[str]:
        return {f"{fact.namespace}/{fact.application}" for fact in self.said.values()}

    def _mirrors(self, mark: str, name: str) -> list[str]:
        return [key for key in self.mirrors.get((mark, name), ()) if key in self.services]

    async def snapshot(self, key: str) -> Snapshot:
        """Return all that a decision about one application's Services in one namespace depends on.

        Raises:
            KubeError: the namespace could not be read.
        """
        namespace, _, name = key.partition("/")
        claims, refused = self._claims(namespace, name)
        services = self._services(namespace, name)
        unknown = [one for one in services.values() if one.application and self._unknown(one.lattice, one.application)]
        claims += [self._remembered(one) for one in unknown]
        kept = self.kept.get(key, {}).values()
        owners = self._slice_owners(services, claims) | {one.service for one in kept}
        terminating = any(one.deleting for one in services.values()) and await self._is_going(namespace)
        return Snapshot(
            namespace,
            name,
            tuple(claims),
            tuple(refused),
            services,
            {one: tuple(self.slices.get(f"{namespace}/{one}", {}).values()) for one in owners},
            {one: route for one in services if (route := self.routes.get(f"{namespace}/{one}")) is not None},
            frozenset(one.lattice for one in unknown),
            tuple(one for one in kept if (of := read_kept(one.kept)) and self._unknown(of.lattice, of.application)),
            sure=all(self._complete(mark) for mark in self.by_lattice if namespace in self.homes(mark)),
            terminating=terminating,
            let_go=self.let_go,
        )

    def _slice_owners(self, services: Mapping[str, ServiceView], claims: Iterable[Claim]) -> set[str]:
        """Return the names of Services whose slices may be there, of Services that are not, too."""
        found = set(services)
        for claim in claims:
            name = claim.application.name
            found |= {names.service_name(name), names.second_service_name(name, claim.lattice)}
        return found

    def _services(self, namespace: str, name: str) -> dict[str, ServiceView]:
        plain = names.service_name(name)
        keys = {*self.by_key.get(f"{namespace}/{name}", ()), f"{namespace}/{plain}"}
        return {
            one.name: one
            for key in sorted(keys)
            if (one := self.services.get(key)) is not None
            and one.application in {name, ""}
            and one.uid not in self.gone
        }

    def _claims(self, namespace: str, name: str) -> tuple[list[Claim], list[Refused]]:
        claims: list[Claim] = []
        refused: list[Refused] = []
        for mark in sorted(self.following.marks, key=self._seniority):
            comparison = self.following.comparison(mark)
            known = comparison.applications.known.get(name) if comparison is not None else None
            if comparison is None or known is None or known.application is None:
                continue
            wish, homes = wish_of(known.application), self.homes(mark)
            group = self._group(mark, namespace)
            if wish.namespace and wish.namespace not in {*homes, *self.elsewhere}:
                refused += [_refusal(wish, known.application, group)] if group is not None else []
            elif namespace == wish.namespace or (not wish.namespace and namespace in homes):
                running = comparison.running
                hosts = self.following.hosts(mark)
                claims.append(Claim(mark, known.application, wish, self._pods(mark), hosts, running, group))
        return claims, refused

    def _remembered(self, service: ServiceView) -> Claim:
        """Return the claim that a Service itself remembers."""
        mark, annotations = service.lattice, (service.manifest or {}).get("annotations") or {}
        listeners = read_reach(annotations.get(names.ANNOTATION_REACH, ""))
        application = Application(service.application, listeners=listeners)
        comparison = self.following.comparison(mark)
        running = comparison.running if comparison is not None else Running()
        return Claim(
            mark,
            application,
            Wish(),
            self._pods(mark),
            self.following.hosts(mark),
            running,
            self._group(mark, service.namespace),
            remembered=True,
        )

    def _seniority(self, mark: str) -> tuple[str, str]:
        """Return what orders lattices: that of the oldest group comes first."""
        return min((group.created for group in self.by_lattice.get(mark, {}).values()), default="~"), mark

    def _group(self, mark: str, namespace: str) -> GroupView | None:
        """Return the group that Events regard: the oldest, of the namespace if there is one."""
        groups = sorted(
            self.by_lattice.get(mark, {}).values(), key=lambda one: (one.namespace != namespace, one.created, one.key)
        )
        return groups[0] if groups else None

    def _pods(self, mark: str) -> tuple[PodView, ...]:
        return tuple(pod for key in self.by_lattice.get(mark, {}) for pod in self.pods.get(key, {}).values())

    def _complete(self, mark: str) -> bool:
        comparison = self.following.comparison(mark)
        return comparison is not None and comparison.applications.complete

    def _unknown(self, mark: str, application: str) -> bool:
        """Say whether it is not known if an application is deployed.

        A lattice that no group names any more has no hosts of ours: what it deploys is reached nowhere here.
        """
        if mark not in self.by_lattice:
            return False
        comparison = self.following.comparison(mark)
        if comparison is None:
            return True
        known = comparison.applications.known.get(application)
        if known is not None and known.application is not None:
            return False
        return not comparison.applications.absent(application)

    async def _is_going(self, namespace: str) -> bool:
        try:
            found = await self.kube.get(NAMESPACES, namespace)
        except NotFound:
            return True
        return bool(found["metadata"].get("deletionTimestamp"))


def _refusal(wish: Wish, application: Application, group: GroupView) -> Refused:
    why = (
        f"application {application.name} asks for its Service in namespace {wish.namespace}, where its lattice has no "
        f"group of hosts: change annotation {names.ANNOTATION_SERVICE_NAMESPACE}, or name the namespace in "
        "TRELLIS_SERVICE_NAMESPACES"
    )
    return Refused("NamespaceNotAllowed", why, group)
