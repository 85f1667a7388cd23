"""Decisions about an application's Services."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from service_reflector.domain.actions import (
    Action,
    CreateService,
    DeleteRoute,
    DeleteSlice,
    DropOthers,
    PatchService,
    RemoveFinalizer,
    RemoveService,
    Warn,
    WriteRoute,
    WriteSlice,
)
from service_reflector.domain.decide import PORTS_MOST, decide, reflected_services
from service_reflector.domain.resources import make_service, make_slice, make_ties
from service_reflector.domain.routes import make_route
from service_reflector.domain.service_options import options_of
from service_reflector.domain.snapshot import Claim, Refused, Snapshot
from support.suite.naming import lacking
from support.wadm.manifests import ANY_HOST, capability, link, manifest
from trellis import names
from trellis.lattice.domain.cached_listeners import read_cached_listeners
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.domain.hosts import Host, Sighting, Unit
from trellis.lattice.domain.manifests import Application, read_application
from trellis.lattice.domain.provider_hosts import ProviderHosts
from trellis.lattice.domain.service_views import (
    PodView,
    RouteView,
    ServiceView,
    SliceView,
    view_route,
    view_service,
    view_slice,
)
from trellis.limits.compact import compact

GROUP = GroupView("g", "group", "uid-group", "2026-01-01T00:00:00Z", deleting=False, lattice="east/1")
POD = PodView("g", "host-1", "uid-1", "group", "node", ("10.0.0.1",), True, False, (("kubernetes", "true"),))


def app(*components: dict[str, Any], name: str = "shop", version: str = "v1", **annotations: str) -> Application:
    return read_application(manifest(name, *components, version=version, **annotations))


def claim(application: Application | None = None, lattice: str = "east/1", **changes: Any) -> Claim:
    application = application or app()
    base = Claim(lattice, application, options_of(application), (POD,), {}, ProviderHosts(), GROUP)
    return replace(base, **changes)


def snapshot(*claims: Claim, **changes: Any) -> Snapshot:
    name = claims[0].application.name if claims else "shop"
    return replace(Snapshot("g", name, tuple(claims)), **changes)


def stored(manifest_: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A manifest as the API server has it."""
    uid = f"uid-{manifest_['metadata']['name']}"
    return manifest_ | {"metadata": manifest_["metadata"] | {"uid": uid, "resourceVersion": "1"} | metadata}


def after(world: Snapshot) -> Snapshot:
    """The world once everything was written that is decided."""
    services = dict(world.services)
    slices: dict[str, dict[str, SliceView]] = {
        name: {piece.name: piece for piece in pieces} for name, pieces in world.slices.items()
    }
    for action in decide(world):
        if isinstance(action, CreateService):
            services[action.target.name] = view_service(stored(make_service(action.target)))
        elif isinstance(action, WriteSlice):
            ties = make_ties(action.wanted, services[action.service])
            made = make_slice(action.wanted, world.namespace, ties)
            slices.setdefault(action.service, {})[action.wanted.name] = view_slice(stored(made))
        elif isinstance(action, RemoveService):
            del services[action.found.name]
        elif isinstance(action, DeleteSlice):
            del slices[action.found.service][action.found.name]
    return replace(world, services=services, slices={name: tuple(pieces.values()) for name, pieces in slices.items()})


def kinds(actions: Sequence[Action]) -> list[str]:
    return [type(action).__name__ for action in actions]


def foreign(name: str = "shop") -> ServiceView:
    return view_service(stored({"metadata": {"name": name, "namespace": "g"}, "spec": {"selector": {"a": "b"}}}))


def service_of_other_controller(**metadata: Any) -> ServiceView:
    ports = [{"name": "http", "port": 8080, "targetPort": 8080, "protocol": "TCP"}]
    made = {
        "metadata": {
            "name": "shop",
            "namespace": "g",
            "labels": {names.LABEL_NAME: "shop", names.LABEL_MANAGED_BY: names.WADM_OPERATOR},
            "finalizers": [names.WASMCLOUD_OPERATOR_SERVICE],
        },
        "spec": {"type": "ClusterIP", "sessionAffinity": "None", "ports": ports, "selector": {"a": "b"}},
    }
    return view_service(stored(made, **metadata))


def test_a_listening_application_gets_a_service_and_endpoints_once() -> None:
    world = snapshot(claim())
    assert kinds(decide(world)) == ["CreateService", "WriteSlice"]
    assert decide(after(world)) == []
    assert list(reflected_services(after(world))) == ["shop"]


@pytest.mark.parametrize(
    "application",
    [
        app(capability("http", link("127.0.0.1:80"), ANY_HOST)),
        app(capability("http", ANY_HOST)),
        app(**{names.ANNOTATION_SERVICE: "false"}),
    ],
    ids=["loopback", "no link", "not wanted"],
)
def test_an_unreachable_application_gets_no_service_and_loses_an_existing_one(application: Application) -> None:
    assert not [item for item in decide(snapshot(claim(application))) if not isinstance(item, Warn)]
    had = after(snapshot(claim()))
    assert "RemoveService" in kinds(decide(replace(had, claims=(claim(application),))))


def test_a_loopback_address_is_reported() -> None:
    (warning,) = decide(snapshot(claim(app(capability("http", link("127.0.0.1:80"), ANY_HOST)))))
    assert isinstance(warning, Warn)
    assert (warning.group, warning.reason) == (GROUP, "LoopbackAddress")
    assert "shop" in warning.message


def test_a_new_version_moves_the_port_of_the_service_that_is_there() -> None:
    had = after(snapshot(claim()))
    new = claim(app(capability("httpserver", link("0.0.0.0:9"), ANY_HOST), version="v2"))
    actions = decide(replace(had, claims=(new,)))
    assert kinds(actions) == ["WriteSlice", "PatchService"]
    patch = actions[1]
    assert isinstance(patch, PatchService)
    assert [(port["name"], port["port"]) for port in patch.patch["spec"]["ports"]] == [("http", 9)]


def test_a_port_keeps_its_name_when_another_comes_before_it() -> None:
    had = after(snapshot(claim(app(capability("web", link("0.0.0.0:80"))))))
    both = claim(app(capability("admin", link("0.0.0.0:81")), capability("web", link("0.0.0.0:80"))))
    patch = next(item for item in decide(replace(had, claims=(both,))) if isinstance(item, PatchService))
    named = {port["name"]: port["port"] for port in patch.patch["spec"]["ports"]}
    assert named == {"http": 80, "http-admin": 81}


def test_an_undeployed_application_loses_its_service_and_an_unknown_one_keeps_it() -> None:
    had = after(snapshot(claim()))
    (removed,) = decide(replace(had, claims=()))
    assert isinstance(removed, RemoveService)
    assert decide(replace(had, claims=(), unknown=frozenset({"east/1"}))) == []


def test_a_gateway_routes_to_a_service_while_requested() -> None:
    asks = {names.ANNOTATION_SERVICE_GATEWAY: "edge/front", names.ANNOTATION_SERVICE_HOSTNAMES: "a.example.com, b.c"}
    world = after(snapshot(claim(app(**asks))))
    (write,) = decide(world)
    assert isinstance(write, WriteRoute)
    assert write.spec == {
        "parentRefs": [{"name": "front", "namespace": "edge"}],
        "hostnames": ["a.example.com", "b.c"],
        "rules": [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "backendRefs": [{"name": "shop", "port": 8080, "weight": 1}],
            }
        ],
    }
    made = view_route(stored(make_route("g", "shop", world.services["shop"].uid, dict(write.spec))))
    routed = replace(world, routes={"shop": made})
    assert decide(routed) == []
    again = decide(replace(routed, routes={"shop": replace(made, owner="another")}))
    assert kinds(again) == ["WriteRoute"], "its Service was made again"
    assert DeleteRoute(made) in decide(replace(routed, claims=(claim(),)))


def routed(**asks: str) -> tuple[Snapshot, RouteView]:
    """A world in which a gateway leads to the application, with the defaults of the API server in the route."""
    world = after(snapshot(claim(app(**{names.ANNOTATION_SERVICE_GATEWAY: "edge/front", **asks}))))
    (write,) = [item for item in decide(world) if isinstance(item, WriteRoute)]
    made = view_route(stored(make_route("g", "shop", world.services["shop"].uid, dict(write.spec))))
    spec = copy.deepcopy({name: value for name, value in made.spec.items() if value is not None})
    spec["parentRefs"][0] |= {"group": "gateway.networking.k8s.io", "kind": "Gateway"}
    spec["rules"][0]["backendRefs"][0] |= {"group": "", "kind": "Service"}
    made = replace(made, spec=spec)
    return replace(world, routes={"shop": made}), made


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another gateway": lambda spec: spec["parentRefs"][0].update(name="other"),
    "one gateway more": lambda spec: spec["parentRefs"].append({"name": "other"}),
    "a section": lambda spec: spec["parentRefs"][0].update(sectionName="https"),
    "host names": lambda spec: spec.update(hostnames=["evil.example.com"]),
    "another port": lambda spec: spec["rules"][0]["backendRefs"][0].update(port=1),
    "no weight": lambda spec: spec["rules"][0]["backendRefs"][0].update(weight=0),
    "a filter": lambda spec: spec["rules"][0].update(filters=[{"type": "RequestMirror"}]),
    "another path": lambda spec: spec["rules"][0]["matches"][0]["path"].update(value="/x"),
    "no rules": lambda spec: spec.update(rules=[]),
    "rules that are none": lambda spec: spec.update(rules="x"),
    "a rule that is none": lambda spec: spec.update(rules=[None]),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("hostnames", ["", "shop.example.com"])
def test_edits_of_a_route_are_reverted(edit: Callable[[dict[str, Any]], Any], hostnames: str) -> None:
    world, made = routed(**{names.ANNOTATION_SERVICE_HOSTNAMES: hostnames})
    assert decide(world) == []
    spec = copy.deepcopy(dict(made.spec))
    edit(spec)
    (write,) = decide(replace(world, routes={"shop": replace(made, spec=spec)}))
    assert isinstance(write, WriteRoute)


def test_defaults_of_a_later_api_server_are_no_change() -> None:
    world, made = routed()
    spec = copy.deepcopy(dict(made.spec))
    spec["useDefaultGateways"] = "None"
    spec["rules"][0]["backendRefs"][0]["something"] = {"of": "later"}
    assert decide(replace(world, routes={"shop": replace(made, spec=spec)})) == []


def remembered(world: Snapshot, **changes: Any) -> Snapshot:
    """The world as it is while nothing is known of the lattice."""
    service = world.services["shop"].manifest()
    listeners = read_cached_listeners(service["annotations"][names.ANNOTATION_CACHED_LISTENERS])
    found = claim(Application("shop", listeners=listeners), remembered=True, **changes)
    return replace(world, claims=(found,), unknown=frozenset({"east/1"}))


def test_endpoints_follow_the_hosts_while_nothing_is_known_of_the_lattice() -> None:
    asks = {f"{names.SERVICE_LABEL_PREFIX}team": "blue"}
    had = after(snapshot(claim(app(capability("web", link("0.0.0.0:80"), ANY_HOST), **asks))))
    assert decide(remembered(had)) == []
    second = replace(POD, name="host-2", uid="uid-2", addresses=("10.0.0.2",))
    assert kinds(decide(remembered(had, pods=(POD, second)))) == ["WriteSlice"]
    assert reflected_services(remembered(had)) == {}, "nothing is said of it"
    assert decide(deleted(remembered(had))) == [], "it waits"


@pytest.mark.parametrize("deleting", [False, True])
def test_a_finalizer_of_a_former_version_goes_though_nothing_is_known_of_the_lattice(*, deleting: bool) -> None:
    """Otherwise its namespace could not be deleted until the lattice answers."""
    had = after(snapshot(claim(app(capability("web", link("0.0.0.0:80"), ANY_HOST)))))
    metadata = {"finalizers": [names.WASMCLOUD_OPERATOR_SERVICE]}
    metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
    service = view_service(stored(make_service(reflected_services(had)["shop"]), **metadata))
    world = replace(remembered(had), services={"shop": service})
    assert kinds(decide(world)) == ["RemoveFinalizer"]
    assert kinds(decide(replace(world, slices={}))) == ["WriteSlice", "RemoveFinalizer"]


@pytest.mark.parametrize("text", ["", "[", "{}", "[1]", '[{"component": 1}]', "null"])
def test_an_edited_memory_is_none(text: str) -> None:
    assert read_cached_listeners(text) == ()


def test_the_service_of_another_owner_is_left_alone_and_reported() -> None:
    (warning,) = decide(snapshot(claim(), services={"shop": foreign()}))
    assert isinstance(warning, Warn)
    assert warning.reason == "ServiceNameTaken"
    assert reflected_services(snapshot(claim(), services={"shop": foreign()})) == {}
    assert decide(snapshot(services={"shop": foreign()})) == []


def test_two_lattices_have_a_service_each_and_keep_it() -> None:
    east, west = claim(), claim(lattice="west/2")
    world = after(snapshot(east, west))
    second = names.second_service_name("shop", "west/2")
    assert {name: item.lattice for name, item in world.services.items()} == {"shop": "east/1", second: "west/2"}
    assert decide(world) == []
    assert decide(replace(world, claims=(west, east))) == [], "whoever is first by now"
    (removed,) = decide(replace(world, claims=(west,)))
    assert isinstance(removed, RemoveService)
    assert removed.found.lattice == "east/1"
    without = after(replace(world, claims=(west,)))
    assert [item.found for item in decide(without) if isinstance(item, DeleteSlice)] == list(world.slices["shop"])
    assert decide(after(without)) == [], "it keeps its name"


def test_a_service_of_the_peer_is_adopted_without_a_gap() -> None:
    world = snapshot(claim(), services={"shop": service_of_other_controller()})
    actions = decide(world)
    assert kinds(actions) == ["WriteSlice", "PatchService", "DropOthers"]
    patch = actions[1]
    assert isinstance(patch, PatchService)
    assert patch.patch["spec"]["selector"] is None
    assert patch.patch["metadata"]["annotations"][names.ANNOTATION_ADOPTING] == "true"
    assert patch.patch["metadata"]["finalizers"] == []
    assert decide(snapshot(services={"shop": service_of_other_controller()})) == [], "whose it is is not known"


def test_endpoints_of_others_are_dropped_until_that_is_done() -> None:
    had = after(snapshot(claim()))
    service = had.services["shop"]
    marked = {**service.manifest()["annotations"], names.ANNOTATION_ADOPTING: "true"}
    half = replace(service, stored=compact({**service.manifest(), "annotations": marked}))
    assert decide(replace(had, services={"shop": half})) == [DropOthers("shop")]


def deleted(world: Snapshot) -> Snapshot:
    return replace(world, services={"shop": replace(world.services["shop"], deleting=True)})


def of_a_former_version(world: Snapshot) -> Snapshot:
    """The world as a version left it that held Services by a finalizer, with slices that go with them."""
    service = world.services["shop"]
    held = replace(service, stored=compact({**service.manifest(), "finalizers": [names.WASMCLOUD_OPERATOR_SERVICE]}))
    owned = tuple(replace(item, preserved="", owner=service.uid) for item in world.slices["shop"])
    return replace(world, services={"shop": held}, slices={"shop": owned})


def test_a_service_of_a_former_version_has_its_addresses_on_a_slice_before_it_loses_its_finalizer() -> None:
    world = of_a_former_version(after(snapshot(claim())))
    write, patch = decide(world)
    assert isinstance(write, WriteSlice)
    assert write.wanted.keeps == ("shop", "east/1")
    assert isinstance(patch, PatchService)
    assert patch.patch == {"metadata": {"finalizers": []}}


def test_a_service_of_a_former_version_that_is_deleted_has_them_there_before_it_goes() -> None:
    world = deleted(of_a_former_version(after(snapshot(claim()))))
    assert kinds(decide(world)) == ["WriteSlice", "RemoveFinalizer"]
    assert kinds(decide(after(world))) == ["RemoveFinalizer"], "it is written once"
    assert kinds(decide(replace(world, terminating=True))) == ["RemoveFinalizer"]
    assert kinds(decide(replace(world, claims=()))) == ["RemoveFinalizer"], "nobody wants it any more"


def test_a_deleted_service_is_recreated_after_its_deletion() -> None:
    world = after(snapshot(claim()))
    assert decide(deleted(world)) == [], "somebody else's finalizer holds it"
    assert kinds(decide(replace(world, services={}))) == ["CreateService", "WriteSlice"]


def test_addresses_that_change_are_written_down() -> None:
    world = after(snapshot(claim()))
    (write,) = decide(replace(world, services={"shop": addressed(world.services["shop"])}))
    assert isinstance(write, WriteSlice)
    assert write.wanted.keeps is not None


def test_one_of_several_slices_keeps_the_addresses_and_goes_on_to() -> None:
    both = replace(POD, addresses=("10.0.0.1", "fd00::1"))
    dual = app(capability("httpserver", link("[::]:8080"), ANY_HOST))
    world = after(snapshot(claim(dual, pods=(both,))))
    assert sorted(bool(item.preserved) for item in world.slices["shop"]) == [False, True]
    assert {item.owner for item in world.slices["shop"]} == {"", world.services["shop"].uid}
    turned = replace(world, slices={"shop": world.slices["shop"][::-1]})
    assert decide(turned) == []


def test_a_service_without_hosts_has_a_slice_for_its_addresses() -> None:
    world = after(snapshot(claim(pods=())))
    (piece,) = world.slices["shop"]
    assert (piece.endpoints, bool(piece.preserved)) == ((), True)
    assert decide(world) == []
    (write,) = decide(replace(world, claims=(claim(),)))
    assert isinstance(write, WriteSlice)
    assert write.wanted.name == piece.name


def test_services_of_two_lattices_that_are_deleted_together_have_their_names_again() -> None:
    east, west = claim(), claim(lattice="west/2")
    world = after(replace(after(snapshot(west)), claims=(east, west)))
    before = {name: item.lattice for name, item in world.services.items()}
    assert before["shop"] == "west/2"
    again = after(replace(world, services={}))
    assert {name: item.lattice for name, item in again.services.items()} == before
    taken = decide(replace(world, services={"shop": replace(foreign(), uid="theirs")}))
    assert [item.target.name for item in taken if isinstance(item, CreateService)] == [*before.keys() - {"shop"}]


ADDRESSES = {"clusterIP": "10.96.7.7", "clusterIPs": ["10.96.7.7"], "type": "ClusterIP", "sessionAffinity": "None"}


def addressed(service: ServiceView) -> ServiceView:
    """A Service as the API server gave it addresses."""
    ports = [{**port, "nodePort": 30123} for port in service.manifest()["spec"]["ports"]]
    return replace(service, stored=compact({**service.manifest(), "spec": {**ADDRESSES, "ports": ports}}))


def preserved(world: Snapshot) -> Snapshot:
    """The world once the Service had addresses, and was deleted by hand."""
    had = after(replace(world, services={"shop": addressed(world.services["shop"])}))
    return replace(had, services={})


@pytest.mark.parametrize("pods", [(POD,), ()], ids=["with hosts", "without"])
def test_former_endpoints_of_a_service_are_known_to_the_next_leader(pods: tuple[PodView, ...]) -> None:
    world = preserved(after(snapshot(claim(pods=pods))))
    world = replace(world, claims=(claim(app(**{names.ANNOTATION_SERVICE_TYPE: "NodePort"}), pods=pods),))
    create, *_ = decide(world)
    assert isinstance(create, CreateService)
    spec = make_service(create.target, create.former)["spec"]
    assert (spec["clusterIP"], spec["ports"][0]["nodePort"]) == ("10.96.7.7", 30123)


def test_preserved_addresses_are_deleted_with_the_application_but_not_while_it_is_unknown() -> None:
    had = after(snapshot(claim()))
    world = preserved(had)
    (piece,) = world.slices["shop"]
    removed = replace(world, claims=())
    assert decide(removed) == [DeleteSlice(piece, "Unpublished")]
    assert decide(replace(removed, awaited=(piece,))) == []
    theirs = replace(foreign(), uid="theirs")
    taken = decide(replace(world, services={"shop": theirs}))
    assert DeleteSlice(piece, "Unpublished") in taken, "it would lead somebody else's Service to our hosts"
    edited = replace(addressed(had.services["shop"]), application="", lattice="", of_other_controller=True)
    assert decide(replace(removed, services={"shop": edited})) == [], (
        "its Service is there, and nobody knows whose it is"
    )


def test_a_name_that_waits_with_its_addresses_is_given_to_no_other_lattice() -> None:
    world = preserved(after(snapshot(claim())))
    (piece,) = world.slices["shop"]
    younger = replace(world, claims=(claim(lattice="west/1"),), awaited=(piece,), unknown=frozenset({"east/1"}))
    create, *others = decide(younger)
    assert isinstance(create, CreateService)
    assert create.target.name == names.second_service_name("shop", "west/1")
    assert not any(isinstance(item, DeleteSlice) for item in others)


def test_a_slice_names_no_service_that_is_none_of_the_application() -> None:
    world = preserved(after(snapshot(claim())))
    (piece,) = world.slices["shop"]
    create, *_ = decide(replace(world, slices={"victim": (replace(piece, service="victim"),)}))
    assert isinstance(create, CreateService)
    assert create.target.name == "shop"


@pytest.mark.parametrize("text", ["{", '{"application":"shop","lattice":"east/1","uid":"former","spec":{}}'])
def test_an_uninstallation_keeps_the_endpoints_of_a_service_for_any_slice_content(text: str) -> None:
    had = after(snapshot(claim()))
    (piece,) = had.slices["shop"]
    world = replace(had, slices={"shop": (replace(piece, preserved=text),)}, remove_finalizers=True)
    assert kinds(decide(world)) == ["WriteSlice"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"application":"shop","lattice":"east/1","spec":{"ports":[1]}}']
)
def test_preserved_services_may_be_edited(text: str) -> None:
    world = preserved(after(snapshot(claim())))
    (piece,) = world.slices["shop"]
    (create, *_) = decide(replace(world, slices={"shop": (replace(piece, preserved=text),)}))
    assert isinstance(create, CreateService)
    assert create.former is None


def test_addresses_preserved_for_another_lattice_are_not_used() -> None:
    world = preserved(after(snapshot(claim())))
    (create, *_) = decide(replace(world, claims=(claim(lattice="west/2"),)))
    assert isinstance(create, CreateService)
    assert create.former is None


def test_nothing_is_made_in_a_namespace_that_goes() -> None:
    assert decide(snapshot(claim(), terminating=True)) == []


def test_uninstalling_lets_every_one_go_and_does_nothing_else() -> None:
    world = of_a_former_version(after(snapshot(claim())))
    (remove_finalizers,) = decide(replace(world, remove_finalizers=True))
    assert isinstance(remove_finalizers, RemoveFinalizer)
    assert decide(snapshot(claim(), remove_finalizers=True)) == []


def test_uninstalling_leaves_no_slice_that_outlives_its_service() -> None:
    world = replace(after(snapshot(claim(), claim(lattice="west/2"))), remove_finalizers=True)
    writes = decide(world)
    assert [(write.wanted.keeps, write.wanted.endpoints) for write in writes if isinstance(write, WriteSlice)] == [
        (None, piece.endpoints) for pieces in world.slices.values() for piece in pieces
    ]
    assert len(writes) == 2
    assert decide(after(world)) == []
    removed = replace(preserved(after(snapshot(claim()))), remove_finalizers=True)
    assert kinds(decide(removed)) == ["DeleteSlice"]


def test_an_unsatisfiable_request_is_reported() -> None:
    (warning,) = decide(snapshot(refused=(Refused("NamespaceNotAllowed", "no", GROUP),)))
    assert warning == Warn(GROUP, "NamespaceNotAllowed", "no")
    assert [
        item.reason
        for item in decide(snapshot(claim(app(**{names.ANNOTATION_SERVICE_TYPE: "Clusterip"}))))
        if isinstance(item, Warn)
    ] == ["InvalidAnnotation"]


def test_settings_of_an_application_are_applied_to_its_service_and_removed_again() -> None:
    asks = {
        names.ANNOTATION_SERVICE_TYPE: "LoadBalancer",
        names.ANNOTATION_SERVICE_AFFINITY: "ClientIP",
        f"{names.SERVICE_LABEL_PREFIX}team": "blue",
        f"{names.SERVICE_ANNOTATION_PREFIX}example.com__pool": "one",
    }
    world = after(snapshot(claim(app(**asks))))
    service = world.services["shop"].manifest()
    assert (service["spec"]["type"], service["spec"]["sessionAffinity"]) == ("LoadBalancer", "ClientIP")
    assert service["labels"]["team"] == "blue"
    assert service["annotations"]["example.com/pool"] == "one"
    (patch,) = decide(replace(world, claims=(claim(),)))
    assert isinstance(patch, PatchService)
    assert patch.patch["metadata"]["labels"] == {"team": None}
    assert patch.patch["metadata"]["annotations"]["example.com/pool"] is None
    assert patch.patch["spec"] == {"type": "ClusterIP", "sessionAffinity": "None"}


def led_to(world: Snapshot) -> set[str]:
    found = [item.wanted for item in decide(world) if isinstance(item, WriteSlice)]
    return {endpoint["targetRef"]["name"] for piece in found for endpoint in piece.endpoints}


def a_host(pod: PodView, provider: str = "", at: float = 0.0, **labels: str) -> Sighting:
    units = (Unit(provider),) if provider else ()
    return Sighting(Host(f"N-{pod.name}", labels={"kubernetes_pod": pod.name, **labels}, providers=units), at)


def test_endpoints_are_hosts_that_meet_a_requirement() -> None:
    spread = {"type": "spreadscaler", "properties": {"spread": [{"name": "a", "requirements": {"zone": "b"}}]}}
    application = app(capability("httpserver", link(), spread))
    fits = replace(POD, name="fits", uid="uid-2", addresses=("10.0.0.2",), labels=(("zone", "b"),))
    reported = replace(POD, name="told", uid="uid-3", addresses=("10.0.0.3",))
    pods = (POD, fits, reported)
    assert led_to(snapshot(claim(application, pods=pods))) == {"fits"}
    hosts = {"told": a_host(reported, zone="b")}
    assert led_to(snapshot(claim(application, pods=pods, hosts=hosts))) == {"fits", "told"}


def test_endpoints_are_hosts_that_run_the_provider_if_known() -> None:
    second = replace(POD, name="host-2", uid="uid-2", addresses=("10.0.0.2",))
    unheard = replace(POD, name="host-3", uid="uid-3", addresses=("10.0.0.3",))
    pods = (POD, second, unheard)
    hosts = {POD.name: a_host(POD), second.name: a_host(second)}
    assert led_to(snapshot(claim(pods=pods, hosts=hosts))) == {"host-1", "host-2", "host-3"}, "nobody runs it"
    hosts = {POD.name: a_host(POD, "shop-httpserver"), second.name: a_host(second)}
    assert led_to(snapshot(claim(pods=pods, hosts=hosts))) == {"host-1", "host-3"}
    running = ProviderHosts()
    running.record("shop-httpserver", "N-host-2", True, 1.0)
    assert led_to(snapshot(claim(pods=pods, hosts=hosts, running=running))) == {"host-1", "host-2", "host-3"}
    running.record("shop-httpserver", "N-host-1", False, 1.0)
    assert led_to(snapshot(claim(pods=pods, hosts=hosts, running=running))) == {"host-2", "host-3"}
    later = {name: replace(seen, at=2.0) for name, seen in hosts.items()}
    assert led_to(snapshot(claim(pods=pods, hosts=later, running=running))) == {"host-1", "host-3"}


def test_of_an_application_with_very_many_ports_the_first_are_reflected_and_the_number_is_reported() -> None:
    application = app()
    first = application.listeners[0]
    many = tuple(replace(first, component=f"http-{number:03}", port=1_000 + number) for number in range(PORTS_MOST + 5))
    world = snapshot(claim(replace(application, listeners=many)))
    (service,) = [item for item in decide(world) if isinstance(item, CreateService)]
    assert [listener.port for _, listener in service.target.ports] == [1_000 + number for number in range(PORTS_MOST)]
    (warning,) = [item for item in decide(world) if isinstance(item, Warn)]
    assert (warning.reason, lacking(warning.message, "105")) == ("TooManyPorts", [])
    fits = snapshot(claim(replace(application, listeners=many[:PORTS_MOST])))
    assert not [item for item in decide(fits) if isinstance(item, Warn)]
    settled = after(world)
    assert not [item for item in decide(settled) if not isinstance(item, Warn)], "and then it is at rest"
