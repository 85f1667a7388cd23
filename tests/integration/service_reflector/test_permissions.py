"""The permissions under deploy/rbac are all that service_reflector uses."""

from __future__ import annotations

import http
from pathlib import Path

import pytest

from support.cluster.grants import SYSTEM, given, granted, manifests, refused, used
from support.lattices.host_world import PATIENCE
from support.lattices.reflected import ReflectedWorld
from support.nodes.fleet import eventually
from support.wadm.manifests import ANY_HOST, capability, link, manifest
from trellis import names
from trellis.kube.resources import ENDPOINTS, LEASES, SERVICES
from trellis_dev.localcluster import ClusterInfo

pytestmark = pytest.mark.cluster


async def test_no_right_is_missing(world: ReflectedWorld, cluster: ClusterInfo, tmp_path: Path) -> None:
    applied = manifests("service-reflector.yaml")
    world.group("group", "rights-lattice", secretName="creds")
    world.pod("group", "host-1")
    labels = {names.LABEL_MANAGED_BY: names.WADM_OPERATOR}
    ports = [{"name": "http", "port": 8080, "protocol": "TCP"}]
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "adopted", "labels": labels, "finalizers": [names.WASMCLOUD_OPERATOR_SERVICE]},
        "spec": {"ports": ports, "selector": labels},
    }
    world.hosts.call("POST", SERVICES, body=theirs)
    await eventually(lambda: world.slices("adopted"), "endpoints of Kubernetes' own controller", seconds=PATIENCE)
    left = world.hosts.api.call("POST", ENDPOINTS.path(world.namespace), {"metadata": {"name": "adopted"}})
    assert left[0] in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}
    with granted(cluster, world.hosts.api, "trellis-service-reflector", tmp_path) as account:
        account.apply(applied)
        world.hosts.api.call("DELETE", LEASES.path(SYSTEM, "trellis-service-reflector"))
        offset = world.hosts.fleet.audit_offset()
        settings = {"kubeconfig": account.kubeconfig, "namespace": SYSTEM}
        async with world.wadm("rights-lattice") as wadm, world.reflector(**settings) as service:
            for name in ("made", "adopted"):
                await wadm.deploy(manifest(name))
            await wadm.deploy(manifest("loop", capability("httpserver", link("127.0.0.1:1"), ANY_HOST)))
            before = await world.has_service("made", 8080)

            def ours() -> bool:
                pieces = world.slices("adopted")
                return {piece["metadata"]["labels"][names.LABEL_SLICE_MANAGED_BY] for piece in pieces} == {
                    names.SLICE_MANAGED_BY
                }

            await eventually(ours, "it is adopted", seconds=PATIENCE)
            there = ENDPOINTS.path(world.namespace, "adopted")
            # They go after the slices of Kubernetes' own controller.
            await eventually(
                lambda: world.hosts.api.call("GET", there)[0] == http.HTTPStatus.NOT_FOUND,
                "its Endpoints are gone",
                seconds=PATIENCE,
            )
            await eventually(lambda: "LoopbackAddress" in world.warnings(), "an Event", seconds=PATIENCE)
            world.hosts.call("DELETE", SERVICES, "made")

            def again() -> bool:
                found = world.service("made")
                return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

            await eventually(again, "it is made again", seconds=PATIENCE)
            world.ready("host-1", ready=False)
            await world.leads_to("made")
            for name in ("made", "adopted"):
                await wadm.undeploy(name)
                await world.has_no_service(name)
            await eventually(lambda: not service.health.readiness().reasons, "ready", seconds=PATIENCE)
    records = world.hosts.fleet.writes(offset)
    assert refused(records, account.user) == []
    anywhere = {(verb, resource) for verb, resource, _ in given(applied)}
    assert {(verb, resource) for verb, resource, _ in used(records, account.user)} <= anywhere
