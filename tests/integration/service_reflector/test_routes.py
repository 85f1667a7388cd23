"""Gateways lead to applications that ask for it, where the API server knows routes."""

from __future__ import annotations

import http
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.lattices.host_world import PATIENCE
from support.lattices.reflected import ReflectedWorld
from support.nodes.fleet import eventually
from support.wadm.manifests import manifest
from trellis import names
from trellis.kube.resources import DEFINITIONS, HTTP_ROUTES

pytestmark = pytest.mark.cluster
DEFINITION = f"{HTTP_ROUTES.plural}.{HTTP_ROUTES.group}"


@pytest.fixture
def routes(world: ReflectedWorld) -> Iterator[None]:
    """A kind HTTPRoute that takes any spec."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": HTTP_ROUTES.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    cache = {"plural": HTTP_ROUTES.plural, "singular": "httproute", "kind": HTTP_ROUTES.kind}
    group = HTTP_ROUTES.group
    # A group of Kubernetes' own needs the word of those who look after it; a test has it not.
    approved = {"api-approved.kubernetes.io": "unapproved, of a test"}
    body = {
        "apiVersion": DEFINITIONS.api_version,
        "kind": DEFINITIONS.kind,
        "metadata": {"name": DEFINITION, "annotations": approved},
        "spec": {"group": group, "scope": "Namespaced", "names": cache, "versions": [version]},
    }
    status, answer = world.hosts.api.call("POST", DEFINITIONS.path(), body)
    assert status in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}, answer
    yield
    world.hosts.api.call("DELETE", DEFINITIONS.path(None, DEFINITION))
    deadline = time.monotonic() + PATIENCE
    while world.hosts.api.ok(HTTP_ROUTES.path()):
        assert time.monotonic() < deadline, "routes are still served"
        time.sleep(0.1)


def found(world: ReflectedWorld, name: str) -> dict[str, Any] | None:
    status, answer = world.hosts.api.call("GET", HTTP_ROUTES.path(world.namespace, name))
    return answer if status == http.HTTPStatus.OK else None


@pytest.mark.usefixtures("routes")
async def test_a_gateway_leads_to_an_application_that_asks_for_it(world: ReflectedWorld) -> None:
    world.group("group", "gate-lattice")
    asks = {names.ANNOTATION_SERVICE_GATEWAY: "edge/front"}
    await eventually(lambda: world.hosts.api.ok(HTTP_ROUTES.path()), "routes are served", seconds=PATIENCE)
    async with world.wadm("gate-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("gate", **asks))
        await eventually(lambda: found(world, "gate"), "a route", seconds=PATIENCE)
        route = found(world, "gate")
        assert route is not None
        assert route["spec"]["parentRefs"] == [{"name": "front", "namespace": "edge"}]
        (rule,) = route["spec"]["rules"]
        assert rule["backendRefs"] == [{"name": "gate", "port": 8080, "weight": 1}]

        edited = {"spec": {"parentRefs": [{"name": "elsewhere"}], "hostnames": ["other.example.com"]}}
        world.hosts.call("PATCH", HTTP_ROUTES, "gate", edited)
        await eventually(
            lambda: (found(world, "gate") or {}).get("spec") == route["spec"], "as it was", seconds=PATIENCE
        )
        await wadm.deploy(manifest("gate", version="v2"))
        await eventually(lambda: found(world, "gate") is None, "it is asked for no more", seconds=PATIENCE)


@pytest.mark.thorough
async def test_without_gateways_the_service_is_there_and_the_reason_is_reported(world: ReflectedWorld) -> None:
    world.group("group", "gateless-lattice")
    async with world.wadm("gateless-lattice") as wadm, world.reflector():
        await wadm.deploy(manifest("gateless", **{names.ANNOTATION_SERVICE_GATEWAY: "front"}))
        await world.has_service("gateless", 8080)
        await eventually(lambda: "WriteRefused" in world.warnings(), "an Event", seconds=PATIENCE)
        assert "HTTPRoute" in world.warnings()["WriteRefused"]
