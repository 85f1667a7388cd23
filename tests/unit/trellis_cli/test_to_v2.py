"""The objects for each part of an application on wasmCloud v2, and its line in the report."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from secrets_backend.domain.decide import ConnectionGrant, Grant
from support.lattices.v2_objects import errors_of
from support.suite.naming import lacking
from support.wadm.manifests import capability, link, manifest
from trellis.crds.secret_grants import SecretGrantSpec
from trellis.names import ANNOTATION_APP_NAME, ANNOTATION_LAST_SYNCED, ANNOTATION_UNDEPLOY, LABEL_MIGRATED_FROM
from trellis_cli.migrate.model.to_v2.convert import Environment, Source, convert
from trellis_cli.migrate.model.to_v2.object_names import part_name
from trellis_cli.migrate.model.to_v2.owners import shared_hosts
from trellis_cli.migrate.model.to_v2.report import Conversion, Line, Reason, Way
from trellis_cli.secrets.model import RuleInputs

Manifest = dict[str, Any]

REDIS = "ghcr.io/wasmcloud/keyvalue-redis:0.29.1"
NATS = "ghcr.io/wasmcloud/keyvalue-nats:0.3.1"
HTTP_SERVER = "ghcr.io/wasmcloud/http-server:0.27.0"
MESSAGING = "ghcr.io/wasmcloud/messaging-nats:0.27.0"
POSTGRES = "ghcr.io/wasmcloud/sqldb-postgres:0.9.0"
POLICY = "policy.secret.wasmcloud.dev/v1alpha1"
KEYVALUE = {"namespace": "wasi", "package": "keyvalue", "interfaces": ["store"]}


def component(name: str = "ui", *traits: Manifest, **properties: Any) -> Manifest:
    image = f"example.com/{name}:1"
    return {"name": name, "type": "component", "properties": {"image": image, **properties}, "traits": list(traits)}


def provider(name: str, image: str, *traits: Manifest, **properties: Any) -> Manifest:
    return {"name": name, "type": "capability", "properties": {"image": image, **properties}, "traits": list(traits)}


def link_to(to: str, config: dict[str, Any] | None = None, **properties: Any) -> Manifest:
    target: Manifest = {"name": to}
    if config is not None:
        target["config"] = [{"name": "settings", "properties": config}]
    target |= {key: properties.pop(key) for key in ("secrets",) if key in properties}
    return {"type": "link", "properties": {**KEYVALUE, "target": target, **properties}}


def scaler(instances: Any, *spread: Manifest, kind: str = "spreadscaler") -> Manifest:
    return {"type": kind, "properties": {"instances": instances, "spread": list(spread)}}


def app(*components: Manifest, name: str = "shop", **annotations: str) -> Manifest:
    return manifest(name, *components, **annotations) | {"spec": {"components": list(components)}}


ALONE = Environment()


def converted(found: Manifest, environment: Environment = ALONE, *, deployed: bool = True) -> Conversion:
    result = convert(Source(found, found["metadata"]["name"], "shop", deployed=deployed), environment)
    assert [error for item in result.objects for error in errors_of(item)] == []
    return result


def of_kind(result: Conversion, kind: str) -> list[Manifest]:
    return [item for item in result.objects if item["kind"] == kind]


def template(result: Conversion) -> Manifest:
    [workload] = of_kind(result, "WorkloadDeployment")
    found: Manifest = workload["spec"]["template"]["spec"]
    return found


def interfaces(result: Conversion, package: str = "keyvalue") -> list[Manifest]:
    return [item for item in template(result)["hostInterfaces"] if item["package"] == package]


def config_from(result: Conversion, at: int = 0) -> list[str]:
    environment = template(result)["components"][at]["localResources"]["environment"]
    return [item["name"] for item in environment["configFrom"]]


def lines(result: Conversion, reason: Reason) -> list[Line]:
    return [line for line in result.lines if line.reason is reason]


def reasons(result: Conversion) -> set[Reason]:
    return {line.reason for line in result.lines}


def test_a_component_behind_an_http_server_is_reached_by_the_reflected_services_name() -> None:
    found = converted(manifest())
    [service], [workload] = of_kind(found, "Service"), of_kind(found, "WorkloadDeployment")
    assert (service["metadata"]["name"], workload["metadata"]["name"]) == ("shop", "shop")
    [port] = service["spec"]["ports"]
    assert (port["name"], port["port"]) == ("http", 8080)
    assert "selector" not in service["spec"]
    assert workload["spec"]["kubernetes"] == {"service": {"name": "shop"}}
    [http] = interfaces(found, "http")
    assert http["interfaces"] == ["incoming-handler"]
    assert http["config"] == {"host": "shop.shop.svc.cluster.local"}
    assert [item["image"] for item in template(found)["components"]] == ["example.com/hello:1"]
    assert [(route.host, route.service, route.port) for route in found.routes] == [
        ("shop.shop.svc.cluster.local", "shop", 8080)
    ]


def test_the_service_comes_before_the_workload_that_refers_to_it() -> None:
    """The operator of v2 gives no EndpointSlice to a Service that is younger than the workload."""
    order = [item["kind"] for item in converted(manifest()).objects]
    assert order.index("Service") < order.index("WorkloadDeployment")


def test_the_service_of_v1_is_never_in_the_output() -> None:
    found = converted(manifest(), Environment(reflected=frozenset({"shop"})))
    [service] = of_kind(found, "Service")
    assert service["metadata"]["name"] == "shop-v2"
    [workload] = of_kind(found, "WorkloadDeployment")
    assert workload["spec"]["kubernetes"]["service"]["name"] == "shop-v2"
    assert interfaces(found, "http")[0]["config"]["host"] == "shop.shop.svc.cluster.local", "the host of v1's clients"
    [line] = lines(found, Reason.SERVICE_NAME_TAKEN)
    assert "trellis.dev/undeploy" in line.instead


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("shop", Environment(reflected=frozenset({"shop", "shop-v2"}))),
        ("shop", Environment(reflected=frozenset({"shop"}), applications=frozenset({"shop", "shop-v2"}))),
        ("a" * 61, Environment(reflected=frozenset({"a" * 61}))),
    ],
    ids=["v1 has it", "an application without a Service on v1", "too long"],
)
def test_the_service_of_v2_has_no_name_of_another_application(name: str, environment: Environment) -> None:
    [service] = of_kind(converted(manifest(name), environment), "Service")
    assert service["metadata"]["name"] == part_name(name, "v2", "beside v1")


@pytest.mark.parametrize("name", ["Web_1", "a" * 80, "9-lives", "ä"])
def test_a_name_that_kubernetes_does_not_accept_is_the_one_that_service_reflector_uses(name: str) -> None:
    found = converted(manifest(name))
    assert len({item["metadata"]["name"] for item in found.objects}) == 1


def parted(name: str, *parts: str) -> Manifest:
    """Return an application whose parts have a workload, a ConfigMap, a Secret and a listener each."""
    found = []
    for at, part in enumerate(parts):
        config = [{"name": part, "properties": {"x": name}}]
        kv = link_to(f"kv-{part}", {"url": "redis://u:hunter2@redis:1"})
        server = provider(f"http-{part}", HTTP_SERVER, link(f"0.0.0.0:{at + 80}", target={"name": part}))
        found += [component(part, kv, config=config), provider(f"kv-{part}", REDIS), server]
    return app(*found, name=name)


def names_in(result: Conversion) -> set[tuple[str, str]]:
    """Return the objects of a conversion, and the Secrets that its workloads refer to."""
    return {(item["kind"], item["metadata"]["name"]) for item in result.objects} | {
        ("Secret", ref["name"])
        for workload in of_kind(result, "WorkloadDeployment")
        for entry in workload["spec"]["template"]["spec"]["hostInterfaces"]
        for ref in entry.get("secretFrom", [])
    }


def test_objects_of_two_applications_have_different_names() -> None:
    """Joined by a hyphen, "shop" and "ui-cart" are "shop-ui" and "cart", or the application "shop-ui-cart"."""
    applications = [parted("shop", "ui-cart", "ui"), parted("shop-ui", "cart", "ui"), parted("shop-ui-cart", "cart")]
    found = [names_in(converted(item)) for item in applications]
    assert len(set().union(*found)) == sum(map(len, found))


@pytest.mark.parametrize("part", ["a" * 80, "Web_1", "ä", "-", "9"])
@pytest.mark.parametrize("application", ["shop", "a" * 80, "Web_1"])
def test_the_name_of_a_part_is_a_dns_label(application: str, part: str) -> None:
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", part_name(application, part))


def test_every_object_is_marked_with_its_application() -> None:
    server = capability("http", link(target={"name": "ui"}))
    found = converted(app(component(config=[{"name": "a", "properties": {"x": "1"}}]), server))
    assert len(found.objects) == 3
    assert {item["metadata"]["labels"][LABEL_MIGRATED_FROM] for item in found.objects} == {"shop"}


def test_a_host_name_of_the_application_is_the_host() -> None:
    annotations = {"trellis.dev/service-hostnames": "*.example.com, shop.example.com, other.example.com"}
    found = converted(manifest(**annotations))
    assert interfaces(found, "http")[0]["config"]["host"] == "shop.example.com"
    assert lines(found, Reason.SERVICE_OPTION)


def test_options_of_the_service_are_kept_and_others_reported() -> None:
    annotations = {
        "trellis.dev/service-type": "LoadBalancer",
        "trellis.dev/service-gateway": "edge/main",
        "service-annotation.trellis.dev/cloud__class": "internal",
        "service-label.trellis.dev/team": "web",
    }
    found = converted(manifest(**annotations))
    [service] = of_kind(found, "Service")
    assert service["spec"]["type"] == "LoadBalancer"
    assert service["metadata"]["annotations"] == {"cloud/class": "internal"}
    assert service["metadata"]["labels"]["team"] == "web"
    assert [line.part for line in lines(found, Reason.SERVICE_OPTION)] == [
        "metadata.annotations.trellis.dev/service-gateway"
    ]


@pytest.mark.parametrize("key", ["version", "note", "service-annotation.trellis.dev/note"])
def test_an_annotation_that_is_too_large_is_reported_and_others_are_kept(key: str) -> None:
    small = {"other": "x", "service-annotation.trellis.dev/other": "x"}
    found = converted(manifest(**{key: "x" * 300_000}, **small))
    reported = [*lines(found, Reason.ANNOTATION), *lines(found, Reason.SERVICE_OPTION)]
    assert [line.part for line in reported] == [f"metadata.annotations.{key}"]
    for item in found.objects:
        assert item["metadata"]["annotations"]["other"] == "x"


@pytest.mark.parametrize("package", ["keyvalue", "http"])
def test_a_version_that_the_crd_does_not_accept_is_reported(package: str) -> None:
    kv = link_to("kv", {"url": "redis://a:1"}, package=f"keyvalue@{'1' * (80 if package == 'keyvalue' else 3)}")
    http = link(target={"name": "ui"}, package=f"http@{'1' * (80 if package == 'http' else 3)}")
    found = converted(app(component("ui", kv), provider("kv", REDIS), provider("http", HTTP_SERVER, http)))
    assert [len(item.get("version", "")) for name in ("keyvalue", "http") for item in interfaces(found, name)] == [
        0 if name == package else 3 for name in ("keyvalue", "http")
    ]
    [line] = lines(found, Reason.INTERFACE_NOT_IN_V2)
    assert line.part.endswith(".properties.package")


def test_an_unknown_annotation_of_trellis_is_reported() -> None:
    found = converted(manifest(**{"trellis.dev/service-tpye": "NodePort"}))
    assert [line.part for line in lines(found, Reason.SERVICE_OPTION)] == [
        "metadata.annotations.trellis.dev/service-tpye"
    ]


def test_a_password_of_a_provider_that_calls_a_component_is_reported() -> None:
    properties = {
        "namespace": "wasmcloud",
        "package": "messaging",
        "interfaces": ["handler"],
        "target": {"name": "ui"},
        "source": {"config": [{"name": "s", "properties": {"client_seed": "hunter2"}}]},
    }
    found = converted(app(component("ui"), provider("nats", MESSAGING, {"type": "link", "properties": properties})))
    assert [line.part for line in lines(found, Reason.CREDENTIALS)] == [
        "spec.components[1].traits[0].properties.source.config[0].properties.client_seed"
    ]
    assert "hunter2" not in repr(found)


def test_a_key_with_thousands_of_digits_is_sorted_like_any_other() -> None:
    config = [{"name": "c", "properties": {"no key " + "9" * 5000: "x"}}]
    assert lines(converted(app(component("ui", config=config))), Reason.CONFIGURATION_KEY)


def test_an_application_without_a_service_on_v1_has_none_on_v2() -> None:
    found = converted(manifest(**{"trellis.dev/service": "false"}))
    assert of_kind(found, "Service") == []
    assert "kubernetes" not in of_kind(found, "WorkloadDeployment")[0]["spec"]


def test_a_second_listener_is_reported_because_endpoints_of_v2_have_one_port() -> None:
    found = converted(manifest("shop", capability("http", link("0.0.0.0:8080"), link("0.0.0.0:8081"))))
    [line] = lines(found, Reason.SECOND_LISTENER)
    assert line.part not in found.parts
    [service] = of_kind(found, "Service")
    assert [port["port"] for port in service["spec"]["ports"]] == [8080]


def test_settings_of_a_second_listener_are_reported_with_their_provider() -> None:
    """Two linked components, each behind a server of its own: the second server is in no workload."""
    cart: Manifest = {"namespace": "acme", "package": "shop", "interfaces": ["cart"]}
    config = [{"name": "c", "properties": {"host": "two.example.com", "address": "0.0.0.0:8081"}}]
    found = converted(
        app(
            component("ui", link_to("api", **cart)),
            component("api"),
            provider("one", HTTP_SERVER, link(target={"name": "ui"})),
            provider("two", HTTP_SERVER, link(target={"name": "api"}, source={"config": []}), config=config),
        )
    )
    assert lines(found, Reason.SECOND_LISTENER)
    assert [line.part for line in lines(found, Reason.PROVIDER_NOT_USED)] == ["spec.components[3]"]
    assert not [place for place in found.parts if place.startswith("spec.components[3]")]


def test_only_a_link_of_wasi_http_is_a_listener_or_permits_requests() -> None:
    other: Manifest = {"namespace": "acme", "package": "shop@9", "interfaces": ["incoming-handler"]}
    found = converted(
        app(
            component("ui", link_to("client", **other)),
            provider("http", HTTP_SERVER, link_to("ui", **other)),
            provider("client", "ghcr.io/wasmcloud/http-client:0.13.0"),
        )
    )
    assert not of_kind(found, "Service")
    assert not interfaces(found, "http")
    assert not lines(found, Reason.EGRESS_DENIED)
    assert [line.part for line in lines(found, Reason.LINK_NOT_TRANSLATED)] == [
        "spec.components[0].traits[0]",
        "spec.components[1].traits[0]",
    ]


def test_components_of_separate_listeners_are_separate_workloads() -> None:
    found = converted(
        app(
            component("a"),
            component("b"),
            capability("http", link(target={"name": "a"}), link("0.0.0.0:8081", target={"name": "b"})),
        )
    )
    deployed = [item["metadata"]["name"] for item in of_kind(found, "WorkloadDeployment")]
    assert deployed == [part_name("shop", "a"), part_name("shop", "b")]
    services = {item["metadata"]["name"]: item["spec"]["ports"][0]["port"] for item in of_kind(found, "Service")}
    assert services == {"shop": 8080, part_name("shop", "b"): 8081}
    assert len({route.host for route in found.routes}) == 2


def with_hosts(*hosts: str, name: str = "shop") -> Manifest:
    """Return an application with a listener for each host, each on a port of its own, to a component of its own."""
    links = [
        link(
            target={"name": f"c{at}"},
            source={"config": [{"name": "c", "properties": {"address": f"0.0.0.0:{8080 + at}", "host": host}}]},
        )
        for at, host in enumerate(hosts)
    ]
    return app(*(component(f"c{at}") for at, _ in enumerate(hosts)), capability("http", *links), name=name)


def test_of_two_listeners_with_one_host_the_second_one_gets_its_own_and_is_reported() -> None:
    """On v1 their ports distinguish them; hosts of v2 route by the Host header only."""
    found = converted(with_hosts("shop.example.com", "Shop.Example.Com", "other.example.com"))
    own = f"{part_name('shop', 'c1')}.shop.svc.cluster.local"
    assert [route.host for route in found.routes] == ["shop.example.com", own, "other.example.com"]
    [line] = lines(found, Reason.HOST_HEADER_TAKEN)
    assert lacking(line.message, "shop.example.com", "c0", "c1") == []
    assert own in line.instead
    assert own in next(item.message for item in lines(found, Reason.HOST_HEADER) if item.part == line.part)


def test_a_host_that_is_the_default_of_another_listener_is_not_shared_either() -> None:
    taken = f"{part_name('shop', 'c1')}.shop.svc.cluster.local"
    found = converted(with_hosts(taken, taken, ""))
    assert len({route.host for route in found.routes}) == 3
    assert len(lines(found, Reason.HOST_HEADER_TAKEN)) == 1


def test_two_applications_with_one_host_are_named() -> None:
    one, other = (converted(with_hosts("a.example.com", "b.example.com", name=name)) for name in ("x", "y"))
    [first, second] = shared_hosts([one, other])
    assert lacking(first, "shop/x", "shop/y", "a.example.com") == []
    assert "b.example.com" in second
    assert shared_hosts([one]) == []


def test_an_application_with_an_object_that_no_api_server_stores_is_one_line() -> None:
    links = [
        link_to("redis", {"url": f"redis://redis.data:6379/{'x' * 500_000}{at}"}, name=f"n{at}") for at in range(3)
    ]
    found = converted(app(component("ui", *links), provider("redis", REDIS)))
    assert (found.objects, found.routes, found.valid) == ((), (), False)
    [line] = found.lines
    assert (line.reason, line.part) == (Reason.OBJECT_TOO_LARGE, "")
    assert lacking(line.message, "WorkloadDeployment shop/shop", "1.5 MiB") == []


def listening(**settings: str) -> Conversion:
    """Return the conversion of an application whose http-server has settings."""
    config = {"config": [{"name": "http", "properties": settings}]}
    return converted(manifest("shop", capability("http", link(None, source=config))))


def test_a_listener_that_no_client_reaches_on_v1_is_reported() -> None:
    [line] = lines(listening(address="127.0.0.1:8080"), Reason.LISTEN_ADDRESS)
    assert line.part == "spec.components[1].traits[0].properties.source.config[0].properties.address"
    assert not lines(listening(address="0.0.0.0:8080"), Reason.LISTEN_ADDRESS)


@pytest.mark.parametrize(
    ("settings", "port", "unused"),
    [
        ({"address": "0.0.0.0:8080", "default_address": "0.0.0.0:9090"}, 8080, ["default_address"]),
        ({"address": "0.0.0.0:8080", "port": "9090"}, 8080, ["port"]),
        ({"address": "0.0.0.0", "port": "9090"}, 9090, []),
        ({"address": "", "default_address": "0.0.0.0:9090"}, 9090, []),
        ({"port": "9090"}, 9090, []),
    ],
)
def test_an_address_that_the_server_does_not_use_is_reported(
    settings: dict[str, str], port: int, unused: list[str]
) -> None:
    found = listening(**settings)
    assert [route.port for route in found.routes] == [port]
    assert [line.part.rpartition(".")[2] for line in lines(found, Reason.HTTP_SETTING)] == unused


def test_a_name_of_a_link_that_a_server_calls_by_is_reported() -> None:
    found = converted(manifest("shop", capability("http", link(name="main"))))
    [line] = lines(found, Reason.LINK_NAME)
    assert (line.part, line.ways) == ("spec.components[1].traits[0].properties.name", (Way.NOTHING,))


def test_routing_by_path_and_settings_of_the_server_are_reported() -> None:
    config = {"address": "0.0.0.0:80", "routing_mode": "path", "path": "/a", "cors_allowed_origins": "[]"}
    source = {"config": [{"name": "c", "properties": config}]}
    found = converted(manifest("shop", capability("http", link(source=source))))
    assert {Reason.HTTP_ROUTING, Reason.HTTP_SETTING} <= reasons(found)


def test_a_host_name_that_hosts_of_v2_refuse_is_reported_and_not_used() -> None:
    """A host of v2 refuses a whole workload with such a name."""
    long = ".".join(["a" * 60] * 5)
    source = {"config": [{"name": "c", "properties": {"address": "0.0.0.0:80", "host": long}}]}
    found = converted(manifest("shop", capability("http", link(source=source))))
    assert Reason.HTTP_ROUTING in reasons(found)
    assert interfaces(found, "http")[0]["config"]["host"] == "shop.shop.svc.cluster.local"


def test_components_that_are_linked_share_a_workload() -> None:
    cart: Manifest = {"namespace": "acme", "package": "shop", "interfaces": ["cart"]}
    found = converted(app(component("ui", link_to("cart", **cart)), component("cart"), component("alone")))
    groups = [
        [item["name"] for item in workload["spec"]["template"]["spec"]["components"]]
        for workload in of_kind(found, "WorkloadDeployment")
    ]
    assert groups == [["ui", "cart"], ["alone"]]
    assert "spec.components[0].traits[0]" in found.parts


def test_links_to_other_applications_are_reported_and_not_guessed() -> None:
    shared = {
        "name": "cart",
        "type": "component",
        "properties": {"application": {"name": "carts", "component": "cart"}},
    }
    found = converted(app(component("ui", link_to("cart", namespace="acme", package="shop")), shared))
    assert [item["name"] for item in template(found)["components"]] == ["ui"]
    [line] = lines(found, Reason.LINK_BETWEEN_APPLICATIONS)
    assert "wasmcloud:messaging" in line.instead
    assert lines(found, Reason.SHARED_COMPONENT)


def test_a_redis_is_a_backend_of_wasi_keyvalue() -> None:
    found = converted(app(component("ui", link_to("kv", {"url": "redis://redis.data:6379"})), provider("kv", REDIS)))
    assert interfaces(found) == [
        {
            "namespace": "wasi",
            "package": "keyvalue",
            "interfaces": ["store"],
            "config": {"backend": "redis", "url": "redis://redis.data:6379"},
        }
    ]


@pytest.mark.parametrize(
    "rest", ["user:hunter2@redis.data:6379", "redis.data/?password=hunter2", "redis.data/#hunter2"]
)
def test_an_address_with_a_password_is_read_from_a_secret_and_shown_nowhere(rest: str) -> None:
    config = {"url": f"redis://{rest}"}
    found = converted(app(component("ui", link_to("kv", config)), provider("kv", REDIS)))
    [entry] = interfaces(found)
    assert entry["secretFrom"] == [{"name": part_name("shop", "kv")}]
    assert "url" not in entry["config"]
    assert "hunter2" not in repr(found)
    [line] = lines(found, Reason.CREDENTIALS)
    assert part_name("shop", "kv") in line.instead
    assert Way.OBJECT in line.ways


def test_settings_of_a_link_take_precedence_over_those_of_the_provider() -> None:
    own = [{"name": "p", "properties": {"url": "redis://old:6379"}}]
    found = converted(
        app(component("ui", link_to("kv", {"url": "redis://new:6379"})), provider("kv", REDIS, config=own))
    )
    assert interfaces(found)[0]["config"]["url"] == "redis://new:6379"


def test_the_leaf_of_a_host_of_v1_is_no_address_on_v2() -> None:
    found = converted(app(component("ui", link_to("kv", {"bucket": "carts"}, name="carts")), provider("kv", NATS)))
    assert interfaces(found)[0]["config"] == {"backend": "nats", "buckets": "carts"}
    assert {Reason.BACKEND_ADDRESS, Reason.BUCKET_NAME} <= reasons(found)
    assert Reason.BACKEND_NOT_SELECTED not in reasons(found)


@pytest.mark.parametrize(
    ("image", "url", "ways"),
    [(NATS, "nats://data:4222", (Way.COMPONENT, Way.HOSTS)), (REDIS, "redis://data:6379", (Way.COMPONENT,))],
)
def test_an_import_without_a_label_gets_the_data_nats_of_the_host(image: str, url: str, ways: tuple[Way, ...]) -> None:
    setting = "cluster_uri" if image == NATS else "url"
    found = converted(app(component("ui", link_to("kv", {setting: url})), provider("kv", image)))
    [line] = lines(found, Reason.BACKEND_NOT_SELECTED)
    assert line.ways == ways
    assert interfaces(found)[0]["config"]["url"] == url


def test_a_handler_gets_the_data_nats_of_the_host() -> None:
    [line] = lines(messaging({"cluster_uris": "nats://n:1"}, {"subscriptions": "a"}), Reason.BACKEND_NOT_SELECTED)
    assert line.ways == (Way.HOSTS,)


def test_a_directory_of_the_host_is_reported() -> None:
    blobs: Manifest = {"package": "blobstore", "interfaces": ["blobstore"]}
    found = converted(
        app(
            component("ui", link_to("files", {"root": "/data"}, **blobs)),
            provider("files", "ghcr.io/wasmcloud/blobstore-fs:0.12.0"),
        )
    )
    assert interfaces(found, "blobstore")[0]["config"] == {"backend": "filesystem", "root": "/data"}
    [line] = lines(found, Reason.BACKEND_ADDRESS)
    assert Way.HOSTS in line.ways


@pytest.mark.parametrize("rest", ["u:hunter2@127.0.0.1:6379", "localhost/?password=hunter2"])
def test_credentials_do_not_hide_that_an_address_is_the_host_itself(rest: str) -> None:
    settings = {"url": f"redis://{rest}"}
    found = converted(app(component("ui", link_to("kv", settings, name="carts")), provider("kv", REDIS)))
    assert {Reason.CREDENTIALS, Reason.BACKEND_ADDRESS} <= reasons(found)
    assert "hunter2" not in repr(found)


def test_a_link_with_a_name_is_an_interface_of_that_name() -> None:
    found = converted(app(component("ui", link_to("kv", {"url": "redis://a:1"}, name="cache")), provider("kv", REDIS)))
    assert interfaces(found)[0]["name"] == "cache"
    assert lines(found, Reason.LINK_NAME)


def test_the_default_link_has_no_name() -> None:
    kv = link_to("kv", {"url": "redis://a:1"}, name="default")
    assert "name" not in interfaces(converted(app(component("ui", kv), provider("kv", REDIS))))[0]


def test_no_component_is_connected_to_the_backend_of_another_one() -> None:
    """Two linked components have a store each: the second one gets a name, and a line."""
    cart: Manifest = {"namespace": "acme", "package": "shop", "interfaces": ["cart"]}
    found = converted(
        app(
            component("ui", link_to("a", {"url": "redis://a:1"}), link_to("cart", **cart)),
            component("cart", link_to("b", {"url": "redis://b:1"})),
            provider("a", REDIS),
            provider("b", REDIS),
        )
    )
    urls = {item.get("name"): item["config"]["url"] for item in interfaces(found)}
    assert urls == {None: "redis://a:1", "cart": "redis://b:1"}
    [line] = lines(found, Reason.INTERFACE_CONFLICT)
    assert Way.COMPONENT in line.ways


def test_equal_links_share_an_interface() -> None:
    wit: Manifest = {"namespace": "acme", "package": "shop", "interfaces": ["cart"]}
    found = converted(
        app(
            component("ui", link_to("a", {"url": "redis://a:1"}), link_to("cart", **wit)),
            component("cart", link_to("a", {"url": "redis://a:1"}, interfaces=["atomics"])),
            provider("a", REDIS),
        )
    )
    assert [item["interfaces"] for item in interfaces(found)] == [["store", "atomics"]]


def test_a_workload_has_at_most_64_interfaces_and_the_others_are_reported() -> None:
    links = [link_to("kv", {"url": f"redis://r{at}:1"}, name=f"n{at}") for at in range(70)]
    found = converted(
        app(component("ui", *links), provider("kv", REDIS), capability("http", link(target={"name": "ui"})))
    )
    assert len(template(found)["hostInterfaces"]) == 64
    assert len(interfaces(found, "http")) == 1
    dropped = lines(found, Reason.TOO_MANY_INTERFACES)
    assert len(dropped) + len(interfaces(found)) == 70
    assert not {line.part for line in dropped} & found.parts.keys()


def test_messages_are_subscribed_to_by_the_workload() -> None:
    properties = {
        "namespace": "wasmcloud",
        "package": "messaging",
        "interfaces": ["handler"],
        "target": {"name": "ui"},
        "source": {"config": [{"name": "s", "properties": {"subscriptions": "a.>,b|q", "cluster_uris": "nats://n:1"}}]},
    }
    found = converted(app(component("ui"), provider("nats", MESSAGING, {"type": "link", "properties": properties})))
    [entry] = interfaces(found, "messaging")
    assert entry["interfaces"] == ["handler"]
    assert entry["config"] == {
        "backend": "nats",
        "url": "nats://n:1",
        "subscriptions": "a.>,b",
        "consumer_group": "q",
    }


def messaging(consumer: dict[str, str], handler: dict[str, str], **own: str) -> Conversion:
    """Return the conversion of a component that sends by one link, and receives by another one."""
    wit = {"namespace": "wasmcloud", "package": "messaging"}
    source = {"config": [{"name": "s", "properties": handler}]}
    receives = {**wit, "interfaces": ["handler"], "target": {"name": "ui"}, "source": source}
    sends = link_to("nats", consumer, **wit, interfaces=["consumer"])
    config = [{"name": "own", "properties": own}]
    nats = provider("nats", MESSAGING, {"type": "link", "properties": receives}, config=config)
    return converted(app(component("ui", sends), nats))


@pytest.mark.parametrize(
    ("consumer", "own"),
    [
        ({"cluster_uris": "nats://n:1"}, {}),
        ({"cluster_uris": "nats://n:1", "subscriptions": "b"}, {}),
        ({}, {"cluster_uris": "nats://n:1", "subscriptions": "b|q"}),
    ],
    ids=["none", "of the link", "of the provider"],
)
def test_a_component_that_sends_and_receives_by_one_backend_has_one_interface(
    consumer: dict[str, str], own: dict[str, str]
) -> None:
    """Subscriptions of a link to a consumer, or by default, are no other backend."""
    found = messaging(consumer, {"cluster_uris": "nats://n:1", "subscriptions": "a"}, **own)
    [entry] = interfaces(found, "messaging")
    assert set(entry["interfaces"]) == {"handler", "consumer", "types"}
    assert entry["config"] == {"backend": "nats", "url": "nats://n:1", "subscriptions": "a"}
    assert not lines(found, Reason.INTERFACE_CONFLICT)
    moved = ["spec.components[0].traits[0].properties.target.config[0].properties.subscriptions"]
    settings = [line.part for line in lines(found, Reason.PROVIDER_SETTING)]
    assert settings == (moved if "subscriptions" in consumer else [])


def test_subscriptions_are_kept_if_messages_are_sent_by_another_backend() -> None:
    found = messaging({"cluster_uris": "nats://other:1"}, {"cluster_uris": "nats://n:1", "subscriptions": "a"})
    entries = {item.get("name"): item["config"] for item in interfaces(found, "messaging")}
    assert entries == {
        None: {"backend": "nats", "url": "nats://n:1", "subscriptions": "a"},
        "ui": {"backend": "nats", "url": "nats://other:1"},
    }
    [line] = lines(found, Reason.INTERFACE_CONFLICT)
    assert line.part == "spec.components[0].traits[0].properties.interfaces"


@pytest.mark.parametrize(
    ("name", "way", "secrets"),
    [("default", Way.HOSTS, None), ("orders", Way.OBJECT, [{"name": part_name("shop", "db")}])],
)
def test_a_database_has_the_address_of_the_host_or_of_the_secret_of_its_label(
    name: str, way: Way, secrets: list[Manifest] | None
) -> None:
    query: Manifest = {"namespace": "wasmcloud", "package": "postgres", "interfaces": ["query"], "name": name}
    config = {"POSTGRES_HOST": "db", "POSTGRES_PASSWORD": "hunter2", "POSTGRES_DATABASE": "shop"}
    found = converted(app(component("ui", link_to("db", config, **query)), provider("db", POSTGRES)))
    [entry] = interfaces(found, "postgres")
    assert entry["config"] == {"backend": "postgres", "database": "shop"}
    assert entry.get("secretFrom") == secrets
    assert {line.ways for line in lines(found, Reason.CREDENTIALS)} == {(way,)}
    assert "hunter2" not in repr(found)


def test_two_databases_of_a_workload_have_an_address_each() -> None:
    query: Manifest = {"namespace": "wasmcloud", "package": "postgres", "interfaces": ["query"]}
    cart: Manifest = {"namespace": "acme", "package": "shop", "interfaces": ["cart"]}
    found = converted(
        app(
            component("ui", link_to("one", **query), link_to("cart", **cart)),
            component("cart", link_to("two", **query)),
            provider("one", POSTGRES),
            provider("two", POSTGRES),
        )
    )
    entries = {item.get("name"): item.get("secretFrom") for item in interfaces(found, "postgres")}
    assert entries == {None: None, "cart": [{"name": part_name("shop", "two")}]}
    assert [line.ways for line in lines(found, Reason.CREDENTIALS)] == [(Way.HOSTS,), (Way.OBJECT,)]


def test_outgoing_requests_are_denied_until_their_hosts_are_listed() -> None:
    out: Manifest = {"namespace": "wasi", "package": "http", "interfaces": ["outgoing-handler"]}
    client = provider("client", "ghcr.io/wasmcloud/http-client:0.13.0")
    found = converted(app(component("ui", link_to("client", **out)), client))
    [line] = lines(found, Reason.EGRESS_DENIED)
    assert "allowedHosts" in line.instead


def test_settings_and_the_name_of_a_link_for_outgoing_requests_are_reported() -> None:
    out: Manifest = {"namespace": "wasi", "package": "http", "interfaces": ["outgoing-handler"]}
    secret = {"name": "token", "properties": {"policy": "vault", "key": "api"}}
    client = provider("client", "ghcr.io/wasmcloud/http-client:0.13.0")
    found = converted(app(component("ui", link_to("client", {"a": "b"}, **out, secrets=[secret], name="out")), client))
    target = "spec.components[0].traits[0].properties.target"
    assert {(line.part, line.reason) for line in found.lines} >= {
        (f"{target}.config[0]", Reason.PROVIDER_SETTING),
        (f"{target}.secrets[0]", Reason.CREDENTIALS),
        ("spec.components[0].traits[0].properties.name", Reason.LINK_NAME),
    }


def test_a_provider_without_a_plugin_is_reported_with_the_ways_out() -> None:
    cron: Manifest = {"namespace": "acme", "package": "cron", "interfaces": ["tick"]}
    found = converted(app(component("ui", link_to("cron", **cron)), provider("cron", "example.com/cron:1")))
    [line] = lines(found, Reason.PROVIDER_NOT_IN_V2)
    assert line.ways == (Way.PLUGIN, Way.SERVICE, Way.CONTAINER, Way.V1)
    assert lines(found, Reason.LINK_NOT_TRANSLATED)


@pytest.mark.parametrize(
    ("instances", "replicas", "pool"),
    [(1, 1, None), (10, 1, 10), (0, 0, None), (2**31 - 1, 1, 2**31 - 1), (2**31, 1, None), ("3", 1, None)],
)
def test_instances_are_kept_between_calls_and_none_means_no_replica(
    instances: Any, replicas: int, pool: int | None
) -> None:
    found = converted(app(component("ui", scaler(instances))))
    [workload] = of_kind(found, "WorkloadDeployment")
    assert workload["spec"]["replicas"] == replicas
    assert template(found)["components"][0].get("poolSize") == pool
    valid = isinstance(instances, int) and instances < 2**31
    assert bool(lines(found, Reason.INSTANCES_INVALID)) is not valid


def test_one_spread_selects_hosts_and_several_are_reported_with_their_shares() -> None:
    one = converted(app(component("ui", scaler(4, {"name": "a", "requirements": {"zone": "a"}}))))
    assert template(one)["hostSelector"] == {"zone": "a"}
    spreads = [
        {"name": "a", "requirements": {"zone": "a"}, "weight": 75},
        {"name": "b", "requirements": {"zone": "b"}, "weight": 25},
    ]
    several = converted(app(component("ui", scaler(4, *spreads))))
    assert "hostSelector" not in template(several)
    [line] = lines(several, Reason.WEIGHTED_SPREAD)
    assert line.ways == (Way.DEPLOYMENTS,)
    assert "poolSize 3" in line.instead
    assert "poolSize 1" in line.instead


@pytest.mark.parametrize("requirements", [{"zone": "eu west"}, {"my zone": "a"}, {"zone": "a", "rack": "x" * 64}])
def test_labels_that_no_host_can_have_are_reported_and_select_nothing(requirements: dict[str, str]) -> None:
    """The operator of v2 would place no Workload: the API server refuses its list of Hosts by such a selector."""
    found = converted(app(component("ui", scaler(4, {"name": "a", "requirements": requirements}))))
    assert "hostSelector" not in template(found)
    [line] = lines(found, Reason.HOST_LABELS)
    assert (line.part, line.ways) == ("spec.components[0].traits[0].properties.spread[0]", (Way.MANIFEST, Way.HOSTS))


def test_a_component_that_wadm_does_not_run_is_reported_and_runs() -> None:
    found = converted(app(component("ui"), component("cart", scaler(1))))
    [line] = lines(found, Reason.SCALER_MISSING)
    assert (line.part, line.ways) == ("spec.components[0]", (Way.MANIFEST,))
    assert [item["spec"]["replicas"] for item in of_kind(found, "WorkloadDeployment")] == [1, 1]


def test_a_daemonscaler_of_a_component_is_reported() -> None:
    found = converted(app(component("ui", scaler(1, kind="daemonscaler"))))
    assert Way.DEPLOYMENTS in lines(found, Reason.DAEMONSCALER)[0].ways


def test_a_configuration_is_a_config_map() -> None:
    config = [{"name": "texts", "properties": {"GREETING": "hello", "log-level": "info", "no key": "x"}}]
    found = converted(app(component("ui", config=config)))
    [configmap] = of_kind(found, "ConfigMap")
    assert configmap["metadata"]["name"] == part_name("shop", "texts")
    assert configmap["data"] == {"GREETING": "hello", "log-level": "info"}
    assert config_from(found) == [part_name("shop", "texts")]
    place = "spec.components[0].properties.config[0].properties"
    assert [line.part for line in lines(found, Reason.ENVIRONMENT_NAME)] == [f"{place}.log-level"]
    assert [line.part for line in lines(found, Reason.CONFIGURATION_KEY)] == [f"{place}.no key"]


def test_a_configuration_of_the_lattice_has_to_be_created() -> None:
    found = converted(app(component("ui", config=[{"name": "texts"}])))
    assert of_kind(found, "ConfigMap") == []
    [name] = config_from(found)
    assert name in lines(found, Reason.NAMED_CONFIGURATION)[0].instead


def test_a_configuration_of_the_lattice_is_not_that_of_the_application_with_its_name() -> None:
    own, of_the_lattice = [{"name": "texts", "properties": {"x": "1"}}], [{"name": "texts"}]
    cart: Manifest = {"namespace": "acme", "package": "shop", "interfaces": ["cart"]}
    found = converted(app(component("a", link_to("b", **cart), config=own), component("b", config=of_the_lattice)))
    [configmap] = of_kind(found, "ConfigMap")
    assert config_from(found) == [configmap["metadata"]["name"]]
    assert config_from(found, 1) != config_from(found)
    assert config_from(found, 1)[0] in lines(found, Reason.NAMED_CONFIGURATION)[0].instead


def test_a_configuration_that_is_larger_than_a_config_map_is_reported() -> None:
    found = converted(app(component("ui", config=[{"name": "big", "properties": {"x": "y" * 1_100_000}}])))
    assert of_kind(found, "ConfigMap") == []
    assert lines(found, Reason.CONFIGURATION_TOO_LARGE)


def test_configurations_of_one_name_with_other_content_are_two_config_maps() -> None:
    first = component("a", config=[{"name": "c", "properties": {"x": "1"}}])
    second = component("b", config=[{"name": "c", "properties": {"x": "2"}}])
    assert {item["data"]["x"] for item in of_kind(converted(app(first, second)), "ConfigMap")} == {"1", "2"}


def with_secret(policy: Manifest, **source: str) -> Manifest:
    uses = [{"name": "api-key", "properties": {"policy": "vault", "key": "api", "field": "token", **source}}]
    found = app(component("ui", secrets=uses))
    found["spec"]["policies"] = [{"name": "vault", "type": POLICY, "properties": {"backend": "kube", **policy}}]
    return found


def rules(*grants: Grant) -> Environment:
    link_of = ConnectionGrant(frozenset({"shop"}), frozenset({("shop", "default")}), grants)
    return Environment(RuleInputs(link_of, None, frozenset(), "kube"))


def secret_from(result: Conversion) -> list[Manifest]:
    local: Manifest = template(result)["components"][0].get("localResources") or {"environment": {}}
    found: list[Manifest] = local["environment"].get("secretFrom", [])
    return found


def test_a_secret_of_the_namespace_is_referenced_with_the_grant_that_permitted_it() -> None:
    found = converted(with_secret({"namespace": "shop"}), rules())
    assert secret_from(found) == [{"name": "api"}]
    [line] = lines(found, Reason.SECRET_INTERFACE)
    assert "system:serviceaccount:shop:wasmcloud-secrets" in line.message
    assert "token" in line.instead


def test_the_grant_is_named_and_claims_that_it_checks_are_reported() -> None:
    spec = SecretGrantSpec.model_validate(
        {"from": [{"namespace": "shop"}], "serviceAccounts": ["*"], "entityIssuers": ["A" + "A" * 55]}
    )
    found = converted(with_secret({"namespace": "shop"}), rules(Grant("shop", "web", spec)))
    assert "SecretGrant shop/web" in lines(found, Reason.SECRET_INTERFACE)[0].message
    assert lines(found, Reason.CLAIMS_NOT_CHECKED)


def test_an_impersonated_account_is_reported() -> None:
    found = converted(with_secret({"namespace": "shop", "impersonate": "reader"}), rules())
    assert secret_from(found) == [{"name": "api"}]
    assert lines(found, Reason.SECRET_IMPERSONATION)


@pytest.mark.parametrize("environment", [rules(), ALONE], ids=["known", "unknown"])
@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({"namespace": "vault"}, Reason.SECRET_NAMESPACE),
        ({}, Reason.SECRET_NAMESPACE),
        ({"namespace": "shop", "backend": "nats-kv"}, Reason.SECRET_BACKEND),
        ({"backend": "vault"}, Reason.SECRET_BACKEND),
    ],
    ids=["another namespace", "the namespace default", "another backend", "a backend without namespaces"],
)
def test_a_secret_that_v2_cannot_read_is_not_referenced(
    policy: Manifest, reason: Reason, environment: Environment
) -> None:
    """A Secret of the same name in the namespace of the workload can be another one."""
    found = converted(with_secret(policy), environment)
    assert secret_from(found) == []
    assert lines(found, reason)


def test_a_secret_with_an_address_is_read_by_the_plugin() -> None:
    secrets = [{"name": "url", "properties": {"policy": "vault", "key": "redis", "field": "url"}}]
    manifest_ = app(component("ui", link_to("kv", secrets=secrets)), provider("kv", REDIS))
    manifest_["spec"]["policies"] = [
        {"name": "vault", "type": POLICY, "properties": {"backend": "kube", "namespace": "shop"}}
    ]
    assert interfaces(converted(manifest_, rules()))[0]["secretFrom"] == [{"name": "redis"}]


def test_policies_are_reported() -> None:
    assert [line.part for line in lines(converted(with_secret({"namespace": "shop"})), Reason.POLICY)] == [
        "spec.policies[0]"
    ]


def test_interfaces_that_hosts_of_v1_give_without_a_link_are_listed() -> None:
    found = converted(app(component()))
    assert [(item["namespace"], item["package"], item["interfaces"]) for item in template(found)["hostInterfaces"]] == [
        ("wasi", "config", ["store"]),
        ("wasi", "logging", ["logging"]),
    ]


def test_an_application_that_is_not_deployed_is_reported() -> None:
    assert lines(converted(manifest(), deployed=False), Reason.NOT_DEPLOYED)


@pytest.mark.parametrize(
    "spoilt",
    [
        None,
        [],
        {},
        {"metadata": {"name": "x"}, "spec": {"components": [{"name": "a", "type": "actor?"}]}},
        {"metadata": {"name": "x", "annotations": {"a": 1}}, "spec": {"components": []}},
        {"metadata": {"name": "\ud800"}, "spec": {"components": []}},
        {"metadata": {"name": "x"}, "spec": {"components": [{"name": "a", "type": "component", "x": 10**40}]}},
        app(component("ui"), component("ui")),
        app(component("ui"), provider("ui", REDIS)),
    ],
)
def test_a_manifest_that_wadm_does_not_accept_is_one_line_and_no_object(spoilt: Any) -> None:
    found = convert(Source(spoilt, "", "shop"))
    assert not found.valid
    assert found.objects == ()
    assert [line.reason for line in found.lines] == [Reason.INVALID_MANIFEST]


def test_a_field_that_wadm_ignores_is_reported() -> None:
    found = copy.deepcopy(manifest())
    found["spec"]["components"][0]["extra"] = 1
    assert [line.part for line in lines(converted(found), Reason.IGNORED_BY_WADM)] == ["spec.components[0].extra"]


def test_a_part_of_no_use_is_no_workload() -> None:
    found = converted(app(provider("kv", REDIS), provider("http", HTTP_SERVER)))
    assert found.objects == ()
    assert [line.part for line in lines(found, Reason.PROVIDER_NOT_USED)] == [
        "spec.components[0]",
        "spec.components[1]",
    ]
    assert not lines(found, Reason.PROVIDER_NOT_IN_V2), "hosts of v2 have plugins for both"


@pytest.mark.parametrize(
    "components",
    [
        (),
        (provider("kv", REDIS),),
        (provider("cron", "example.com/cron:1"), provider("http", HTTP_SERVER)),
        (component("ui", application={"name": "other", "component": "ui"}) | {"properties": {"image": ""}},),
    ],
    ids=["empty", "a provider", "providers", "a component without an image"],
)
def test_an_application_that_runs_nothing_on_v2_is_reported(components: tuple[Manifest, ...]) -> None:
    found = converted(app(*components))
    assert found.objects == ()
    assert [line.part for line in lines(found, Reason.NO_WORKLOAD)] == ["spec.components"]


def test_an_application_with_a_workload_is_not_reported_to_run_nothing() -> None:
    assert not lines(converted(manifest()), Reason.NO_WORKLOAD)


@pytest.mark.parametrize(
    ("image", "valid"),
    [
        ("ghcr.io/acme/ui:1", True),
        ("localhost:5000/ui@sha256:" + "a" * 64, True),
        ("localhost:5000/ui:1@sha512:" + "a" * 128, True),
        ("localhost:5000/ui@sha512:" + "a" * 64, False),
        ("acme/ui", True),
        ("ui:1", True),
        ("not a ref!!", False),
        ("ghcr.io/acme/ui:${TAG}", False),
        ("https://ghcr.io/acme/ui:1", False),
    ],
)
def test_an_image_that_no_host_can_pull_is_reported(image: str, valid: bool) -> None:
    found = converted(app(component("ui") | {"properties": {"image": image}}))
    parts = [line.part for line in lines(found, Reason.INVALID_IMAGE)]
    assert parts == ([] if valid else ["spec.components[0].properties.image"])


def test_labels_and_annotations_are_kept() -> None:
    found = manifest(description="A shop")
    found["metadata"]["labels"] = {"team": "web", "bad": "not valid"}
    metadata = of_kind(converted(found), "WorkloadDeployment")[0]["metadata"]
    assert metadata["labels"]["team"] == "web"
    assert metadata["annotations"] == {"version": "v1", "description": "A shop"}
    assert [line.part for line in lines(converted(found), Reason.LABEL)] == ["metadata.labels.bad"]


@pytest.mark.parametrize("label", ["app.kubernetes.io/instance", "applyset.kubernetes.io/part-of", "kapp.k14s.io/app"])
def test_a_label_by_which_a_tool_deletes_objects_is_not_copied(label: str) -> None:
    found = manifest()
    found["metadata"]["labels"] = {label: "shop", "app.kubernetes.io/part-of": "shop"}
    result = converted(found)
    assert all(label not in item["metadata"]["labels"] for item in result.objects)
    assert of_kind(result, "WorkloadDeployment")[0]["metadata"]["labels"]["app.kubernetes.io/part-of"] == "shop"
    assert [line.part for line in lines(result, Reason.LABEL)] == [f"metadata.labels.{label}"]


def test_labels_and_annotations_for_tools_are_reported() -> None:
    """The manifest for wadm does not have them, so the workload cannot either."""
    found = manifest(**{"argocd.argoproj.io/sync-wave": "2", "trellis.dev/later": "x"})
    found["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm", "trellis.dev/lattice": "blue"}
    result = converted(found)
    assert [line.part for line in lines(result, Reason.LABEL)] == [
        "metadata.labels.app.kubernetes.io/managed-by",
        "metadata.labels.trellis.dev/lattice",
    ]
    assert [line.part for line in lines(result, Reason.ANNOTATION)] == [
        "metadata.annotations.argocd.argoproj.io/sync-wave",
        "metadata.annotations.trellis.dev/later",
    ]


def test_annotations_that_kubectl_and_trellis_write_are_not_reported() -> None:
    own = [ANNOTATION_APP_NAME, ANNOTATION_LAST_SYNCED, ANNOTATION_UNDEPLOY]
    written = dict.fromkeys(("kubectl.kubernetes.io/last-applied-configuration", *own), "x")
    assert not lines(converted(manifest(**written)), Reason.ANNOTATION)


def test_a_name_of_a_megabyte_is_not_repeated_in_each_line() -> None:
    long = "x" * 1_000_000
    links = [link_to("kv", name=f"n{number}") for number in range(20)]
    found = converted(
        app(component(long, *links) | {"properties": {"image": "example.com/ui:1"}}, provider("kv", REDIS))
    )
    assert len(found.lines) > len(links)
    assert max(len(line.message) + len(line.instead) for line in found.lines) < 10_000
