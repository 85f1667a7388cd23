"""An example runs: ConfigMaps are mirrored, by a guest that sleeps in between, over restarts and kills."""

from __future__ import annotations

import http
import re
import shutil
from pathlib import Path

import pytest

from support.cluster.api_proxy import ApiProxy
from support.cluster.crd_deletion import define_again, delete_definition
from support.guests.controllers_world import CONFIG_MAPS, Host, Manifest, Tenant, prebuilt, until
from support.suite.service_process import get
from trellis.kube.resources import WASM_CONTROLLERS

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


@pytest.fixture
def mirror(tenant: Tenant, target: Tenant) -> str:
    """A controller that mirrors from the one namespace to the other."""
    tenant.account("mirror", CONFIG_MAPS, namespaces=(tenant.name, target.name))
    tenant.module("mirror", prebuilt("mirror"))
    tenant.controller("mirror", config={"targetNamespace": target.name})
    return "mirror"


async def test_existing_and_new_objects_are_mirrored_and_deletions_too(
    host: Host, tenant: Tenant, target: Tenant, mirror: str
) -> None:
    tenant.config_map("before", x="1")
    async with host.serving():
        await until(lambda: target.data("before") == {"x": "1"}, "mirrored")
        await until(host.asleep, "suspended")
        tenant.config_map("later", y="1")
        await until(lambda: target.data("later") == {"y": "1"}, "mirrored")
        await until(host.asleep, "suspended again, so that the next change wakes it")
        tenant.config_map("later", y="2")
        await until(lambda: target.data("later") == {"y": "2"}, "followed")
        tenant.delete("before")
        await until(lambda: target.data("before") is None, "taken away")
        await until(lambda: tenant.condition(mirror, "Ready") == ("True", "Running"), "it is ready")
        assert tenant.condition(mirror, "Accepted") == ("True", "Accepted")
        assert host.metric("trellis_controller_cold_starts_total") == 1
        assert host.metric("trellis_controller_wake_seconds_count") >= 2
        row = (await host.command("status"))["controllers"]
        assert row["ok"], row
        assert (row["count"], row["not_ready"]) == (1, [])
        assert row["holder"]


@pytest.mark.usefixtures("mirror")
async def test_after_a_restart_it_sleeps_on_and_only_what_changed_wakes_it(
    host: Host, tenant: Tenant, target: Tenant
) -> None:
    tenant.config_map("same", x="1")
    tenant.config_map("gone", x="1")
    async with host.serving():
        await until(lambda: target.data("same") == target.data("gone") == {"x": "1"}, "mirrored")
        await until(host.asleep, "suspended")
    tenant.delete("gone")
    async with host.serving():
        await until(lambda: target.data("gone") is None, "what was deleted meanwhile is taken away")
        await until(host.asleep, "suspended again")  # by then the call has been counted
        assert host.metric("trellis_controller_cold_starts_total") == 0
        assert host.metric("trellis_controller_wake_seconds_count") >= 1
        calls = host.metric("trellis_controller_call_seconds_count")
        assert calls == 1, "it was told again what it knew"


@pytest.mark.usefixtures("mirror")
async def test_a_start_while_wasm_controllers_are_not_served_keeps_their_state(
    host: Host, tenant: Tenant, target: Tenant, tmp_path: Path
) -> None:
    tenant.config_map("same", x="1")
    async with ApiProxy(Path(host.cluster.kubeconfig), tmp_path) as proxy:
        host.settings["TRELLIS_KUBECONFIG"] = str(proxy.kubeconfig(proxy.port, tmp_path / "kubeconfig"))
        async with host.serving():
            await until(lambda: target.data("same") == {"x": "1"}, "mirrored")
            await until(host.asleep, "suspended")
        proxy.withheld = f"/apis/{WASM_CONTROLLERS.api_version}/"
        async with host.serving():
            kept = re.compile(rf"watch {WASM_CONTROLLERS.plural}\b.*; 1 ")  # one has state on disk
            await until(lambda: kept.search(get(host.port, "/readyz")[1]), "not ready, with the reason")
            proxy.withheld = ""
            await until(lambda: get(host.port, "/readyz")[0] == http.HTTPStatus.OK, "ready")
            await until(host.asleep, "suspended as before")
            assert host.metric("trellis_controller_cold_starts_total") == 0
            assert host.metric("trellis_controller_call_seconds_count") == 0, "it was told again what it knew"


@pytest.mark.thorough
async def test_a_controller_that_is_created_again_with_its_crd_begins_without_state_and_ends_the_same(
    host: Host, tenant: Tenant, target: Tenant, mirror: str
) -> None:
    tenant.config_map("same", x="1")
    async with host.serving():
        await until(lambda: target.data("same") == {"x": "1"}, "mirrored")
        await until(host.asleep, "suspended")
        former = tenant.found(mirror)
        delete_definition(tenant.api, WASM_CONTROLLERS)
        try:
            await until(lambda: host.metric("trellis_controllers") == 0, "the controller is gone")
            assert target.data("same") == {"x": "1"}
        finally:
            await define_again(tenant.api, WASM_CONTROLLERS)
        before = host.metric("trellis_controller_call_seconds_count")
        tenant.make({key: former[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": place(former)})
        await until(lambda: host.metric("trellis_controller_cold_starts_total") == 2, "started cold")
        await until(host.asleep, "suspended")
        assert host.metric("trellis_controller_call_seconds_count") == before + 1, "it was told all it watches"
        assert target.data("same") == {"x": "1"}
        tenant.config_map("same", x="2")
        await until(lambda: target.data("same") == {"x": "2"}, "followed")


def place(manifest: Manifest) -> Manifest:
    return {key: manifest["metadata"][key] for key in ("namespace", "name")}


@pytest.mark.thorough
@pytest.mark.usefixtures("mirror")
async def test_a_kill_costs_nothing_but_repeats(host: Host, tenant: Tenant, target: Tenant) -> None:
    for number in range(20):
        tenant.config_map(f"c{number}", x="1")
    async with host.serving():
        await until(lambda: target.data("c3") is not None, "in the middle of it")
        await host.kill()
    tenant.delete("c3")
    tenant.config_map("c4", x="2")
    async with host.serving():
        await until(lambda: target.data("c4") == {"x": "2"}, "followed")
        await until(lambda: target.data("c3") is None, "taken away")
        for number in range(5, 20):
            await until(lambda number=number: target.data(f"c{number}") == {"x": "1"}, "mirrored")


@pytest.mark.thorough
async def test_changes_during_a_loss_of_the_disk_are_corrected(host: Host, tenant: Tenant, target: Tenant) -> None:
    tenant.account("mirror", CONFIG_MAPS, namespaces=(tenant.name, target.name))
    tenant.module("mirror", prebuilt("mirror"))
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    mirrors = {"examples.trellis.dev/mirrored-from": tenant.name}
    tenant.controller(
        "mirror",
        watches=[
            kind | {"labelSelector": {"matchLabels": {"watched": "true"}}},
            kind | {"namespaces": [target.name], "labelSelector": {"matchLabels": mirrors}},
        ],
        config={"targetNamespace": target.name, "selector": "watched=true"},
    )
    for name in ("stays", "goes"):
        tenant.config_map(name, x="1")
    async with host.serving():
        await until(lambda: target.data("stays") == target.data("goes") == {"x": "1"}, "mirrored")
        await until(host.asleep, "suspended")
    tenant.delete("goes")
    target.config_map("stays", x="spoilt")
    shutil.rmtree(host.directory / "data")
    async with host.serving():
        await until(lambda: target.data("goes") is None, "what was deleted meanwhile is taken away")
        await until(lambda: target.data("stays") == {"x": "1"}, "made right")
        await until(host.asleep, "it does not call itself for ever")
