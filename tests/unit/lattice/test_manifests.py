"""The listeners of an application, by its manifest."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.lattices.lattice_recordings import messages, replies
from support.wadm.manifests import ANY_HOST, capability, link, manifest
from trellis import names
from trellis.lattice.domain.addresses import AddressError, Family, ListenAddress, read_address
from trellis.lattice.domain.manifests import Listener, Protocol, read_application
from trellis.lattice.domain.oam import ManifestError


def spread(*requirements: dict[str, str], kind: str = "spreadscaler") -> dict[str, Any]:
    rows = [{"name": str(index), "requirements": item} for index, item in enumerate(requirements)]
    return {"type": kind, "properties": {"instances": 1, "spread": rows}}


def only(found: dict[str, Any]) -> Listener:
    (listener,) = read_application(found).listeners
    return listener


@pytest.mark.parametrize(
    ("address", "port", "expected"),
    [
        pytest.param("0.0.0.0:8080", "", ListenAddress(8080, Family.IPV4), id="every IPv4 address"),
        pytest.param("[::]:8080", "", ListenAddress(8080), id="every address"),
        pytest.param(":8080", "", ListenAddress(8080), id="no host"),
        pytest.param("8080", "", ListenAddress(8080), id="a port alone"),
        pytest.param("", "8080", ListenAddress(8080), id="the port's own setting"),
        pytest.param("0.0.0.0", "8080", ListenAddress(8080, Family.IPV4), id="address and port apart"),
        pytest.param("::", "8080", ListenAddress(8080), id="IPv6 without brackets, port apart"),
        pytest.param("[::]", "8080", ListenAddress(8080), id="IPv6 in brackets, port apart"),
        pytest.param("0.0.0.0:80", "8080", ListenAddress(80, Family.IPV4), id="the address's own port wins"),
        pytest.param("10.1.2.3:80", "", ListenAddress(80, Family.IPV4), id="one IPv4 address"),
        pytest.param("[fd00::1]:80", "", ListenAddress(80, Family.IPV6), id="one IPv6 address"),
        pytest.param("[fe80::1%eth0]:80", "", ListenAddress(80, Family.IPV6), id="with a zone"),
        pytest.param("[::ffff:0.0.0.0]:80", "", ListenAddress(80, Family.IPV4), id="IPv4 mapped"),
        pytest.param("127.0.0.1:80", "", ListenAddress(80, Family.IPV4, loopback=True), id="loopback"),
        pytest.param("127.8.8.8:80", "", ListenAddress(80, Family.IPV4, loopback=True), id="another loopback"),
        pytest.param("[::1]:80", "", ListenAddress(80, Family.IPV6, loopback=True), id="loopback of IPv6"),
        pytest.param("[::ffff:127.0.0.1]:80", "", ListenAddress(80, Family.IPV4, loopback=True), id="mapped loopback"),
        pytest.param("localhost:80", "", ListenAddress(80, loopback=True), id="localhost"),
        pytest.param(" 0.0.0.0:80 ", "", ListenAddress(80, Family.IPV4), id="white space"),
    ],
)
def test_an_address_is_read(address: str, port: str, expected: ListenAddress) -> None:
    assert read_address(address, port) == expected


@pytest.mark.parametrize(
    "address", ["", "0.0.0.0", "0.0.0.0:0", "0.0.0.0:65536", "0.0.0.0:http", "[::", "[::]80", "x.org:80", "::1:80:"]
)
def test_an_invalid_address_is_refused_with_a_reason(address: str) -> None:
    with pytest.raises(AddressError):
        read_address(address)


@given(st.text(), st.text())
def test_any_text_is_an_address_or_refused(address: str, port: str) -> None:
    with contextlib.suppress(AddressError):
        assert 1 <= read_address(address, port).port <= 65535


def test_the_recorded_manifests_are_read() -> None:
    (published,) = messages("manifest_published")
    application = read_application(published["data"]["data"])
    assert (application.name, application.version) == ("hello-world", "01M7Y7F1MZ8QC56GGXYTJ2R95E")
    assert application.listeners == ()
    (reason,) = application.unreachable
    assert (reason.component, reason.reason) == ("httpserver", "LoopbackAddress")
    assert "127.0.0.1:8081" in reason.message
    (reply,) = replies("wadm.api.default.model.get.shop")
    assert only(reply["manifest"]) == Listener(
        "httpserver", 8095, Protocol.HTTP, Family.IPV4, ((("zone", "b"),),), ("shop-httpserver",)
    )


@pytest.mark.parametrize(
    "component",
    [
        pytest.param(capability("httpserver", ANY_HOST, link()), id="the link after the scaler"),
        pytest.param(capability("httpserver", link(), ANY_HOST), id="the scaler after the link"),
        pytest.param(capability("httpserver", link()), id="no scaler"),
        pytest.param(capability("httpserver", link(), spread()), id="a spreadscaler without spreads"),
        pytest.param(
            capability("httpserver", link("0.0.0.0:9", package="keyvalue"), link(), ANY_HOST), id="the second link"
        ),
        pytest.param(
            capability(
                "httpserver",
                link(None, source_config=[{"name": "http", "properties": {"address": "0.0.0.0:8080"}}]),
            ),
            id="source_config",
        ),
        pytest.param(
            capability(
                "httpserver",
                link(
                    None, source={"config": [{"name": "a"}, {"name": "b", "properties": {"address": "0.0.0.0:8080"}}]}
                ),
            ),
            id="the second configuration",
        ),
        pytest.param(
            capability(
                "httpserver", link(None), config=[{"name": "a", "properties": {"default_address": "0.0.0.0:8080"}}]
            ),
            id="configuration of the capability",
        ),
        pytest.param(
            capability("httpserver", link(), config=[{"name": "a", "properties": {"address": "0.0.0.0:1"}}]),
            id="the link's configuration wins",
        ),
        pytest.param(
            capability(
                "httpserver",
                link(None, source={"config": [{"name": "a", "properties": {"address": "0.0.0.0", "port": 8080}}]}),
            ),
            id="a port that is a number",
        ),
        pytest.param(
            capability(
                "httpserver", link(None, source={"config": [{"name": "a", "properties": {"Address": "0.0.0.0:8080"}}]})
            ),
            id="a key in other letters",
        ),
        pytest.param(
            capability("httpserver", link(package="http@0.2.2", interfaces=["incoming-handler@0.2.2"])),
            id="an interface with its version",
        ),
        pytest.param(capability(image="registry.example.com/mirror/http-server:1"), id="an image of a mirror"),
        pytest.param(capability(image="wasmcloud+builtin://http-server"), id="a built-in"),
    ],
)
def test_a_capability_that_listens_is_found(component: dict[str, Any]) -> None:
    listener = only(manifest("shop", component))
    if listener.family is Family.ANY:
        listener = Listener(**{**{f: getattr(listener, f) for f in listener.__dataclass_fields__}, "family": "IPv4"})
    assert listener == Listener("httpserver", 8080, Protocol.HTTP, Family.IPV4, ((),), ("shop-httpserver",))


@pytest.mark.parametrize(
    ("scalers", "expected"),
    [
        ([spread({"zone": "a"}, {"zone": "b"})], ((("zone", "a"),), (("zone", "b"),))),
        ([spread({"zone": "b", "arch": "arm"}, kind="daemonscaler")], ((("arch", "arm"), ("zone", "b")),)),
        ([spread({"zone": "a"}), spread({"zone": "b"}, kind="daemonscaler")], ((("zone", "a"),), (("zone", "b"),))),
        ([spread({"zone": "a"}, {})], ((),)),
        ([spread({"zone": "a"}), ANY_HOST], ((),)),
    ],
    ids=["two spreads", "a daemonscaler", "two scalers", "one of them is any host", "one has no spread"],
)
def test_the_requirements_of_all_spreads_are_alternatives(scalers: list[Any], expected: object) -> None:
    assert only(manifest("shop", capability("httpserver", link(), *scalers))).requirements == expected


def test_several_capabilities_are_several_ports_and_one_port_is_one() -> None:
    first = capability("web", link("0.0.0.0:80"), spread({"zone": "a"}))
    second = capability("admin", link("0.0.0.0:81"), ANY_HOST)
    third = capability("more", link("[::]:80"), spread({"zone": "b"}), id="more-id")
    found = read_application(manifest("shop", first, second, third)).listeners
    assert [(item.component, item.port) for item in found] == [("web", 80), ("admin", 81)]
    assert found[0].requirements == ((("zone", "a"),), (("zone", "b"),))
    assert (found[0].family, found[0].providers) == (Family.ANY, ("more-id", "shop-web"))


def test_ports_by_annotation() -> None:
    database = capability("db", ANY_HOST)
    ports = {names.ANNOTATION_SERVICE_PORTS: "db=5432, db=8080/http ,nobody=1"}
    application = read_application(manifest("shop", database, **ports))
    assert [(listener.port, listener.protocol) for listener in application.listeners] == [
        (5432, Protocol.TCP),
        (8080, Protocol.HTTP),
    ]
    (reason,) = application.unreachable
    assert (reason.reason, "nobody" in reason.message) == ("UnknownComponent", True)


@pytest.mark.parametrize(
    ("ports", "reason"),
    [
        ("db", "'db' has no port"),
        ("db=", "'db=' has no port"),
        ("db=65536", "'65536'"),
        ("db=1/udp", "'udp' is neither tcp nor http"),
        ("=1/", ""),
    ],
)
def test_an_invalid_port_annotation_is_reported_and_affects_no_other_port(ports: str, reason: str) -> None:
    text = f"{ports}, httpserver = 9000 / http"
    application = read_application(manifest(**{names.ANNOTATION_SERVICE_PORTS: text}))
    assert [listener.port for listener in application.listeners] == [8080, 9000]
    (received_at,) = application.unreachable
    assert received_at.reason == ("InvalidAnnotation" if reason else "UnknownComponent")
    assert reason in received_at.message


@pytest.mark.parametrize(
    ("component", "reason"),
    [
        (capability("httpserver", link(None), ANY_HOST), "NoAddress"),
        (
            capability(
                "httpserver",
                link(
                    None,
                    source={"config": [{"name": "a", "properties": {"path": "/"}}]},
                    source_config=[{"name": "b", "properties": {"address": "0.0.0.0:1"}}],
                ),
            ),
            "NoAddress",
        ),
        (capability("httpserver", link("[::1]:8080"), ANY_HOST), "LoopbackAddress"),
        (capability("httpserver", link("nowhere"), ANY_HOST), "InvalidAddress"),
    ],
)
def test_an_unreachable_port_is_reported_and_affects_no_other(component: dict[str, Any], reason: str) -> None:
    application = read_application(manifest("shop", component, capability("other")))
    assert [listener.component for listener in application.listeners] == ["other"]
    assert [item.reason for item in application.unreachable] == [reason]


def test_a_shared_provider_has_the_id_of_its_application() -> None:
    shared = capability(application={"name": "gate-way", "component": "http"})
    assert only(manifest("shop", shared)).providers == ("gate_way-http",)


def test_a_scaler_of_a_shared_provider_is_ignored() -> None:
    shared = capability("http", link(), spread({"zone": "a"}), application={"name": "gateway", "component": "http"})
    assert only(manifest("shop", shared)).requirements == ((),)


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        ([], "manifest"),
        ({}, "metadata.name"),
        ({"metadata": []}, "manifest.metadata"),
        ({"metadata": {"name": 5}}, "metadata.name"),
        ({"metadata": {"name": "a"}, "spec": {"components": {}}}, "spec.components"),
        ({"metadata": {"name": "a"}, "spec": {"components": [1]}}, "spec.components[0]"),
        (manifest("a", capability("b", {"type": "link", "properties": 1})), "spec.components[1].traits[0].properties"),
        (manifest("a", capability("b", link(interfaces="x"))), "spec.components[1].traits[0].properties.interfaces"),
        (manifest("a", capability("b", link(source=[1]))), "spec.components[1].traits[0].properties.source"),
    ],
)
def test_garbage_is_refused_with_the_name_of_the_field(broken: object, field: str) -> None:
    with pytest.raises(ManifestError) as refusal:
        read_application(broken)
    assert field in str(refusal.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_any_damage_is_read_or_refused(data: st.DataObject) -> None:
    found = json.loads(json.dumps(manifest("shop", capability(config=[{"name": "a", "properties": {}}]))))
    places = list(_places(found))
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = data.draw(_JSON)
    try:
        application = read_application(found)
    except ManifestError as error:
        message = str(error)
        assert "`" in message or "map" in message
    else:
        assert all(
            1 <= listener.port <= 65535 and listener.requirements and listener.providers
            for listener in application.listeners
        )


def _places(value: Any) -> Any:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        yield value, key
        yield from _places(inner)


@given(st.from_regex(r"[-\w]{1,80}", fullmatch=True))
def test_every_application_has_the_name_of_a_service(name: str) -> None:
    for made in (names.service_name(name), names.second_service_name(name, "x")):
        assert len(made) <= 63
        assert made[0].isascii()
        assert made[0].isalpha()
        assert made[-1].isalnum()
        assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    if names.service_name(name) != name:
        assert names.service_name(name).endswith(names.short_hash(name))
