"""Wasm pods in a console in front of a real API server: live, with real RBAC, as ``trellis explain`` has them."""

from __future__ import annotations

import http
from collections.abc import Iterator

import pytest

from support.console.viewing import READ_ALL, Accounts, rule, run_console, tab
from support.guests.controllers_world import define
from support.wasm_pods.served import ServedWasmPods
from trellis.kube.resources import RUNTIME_CLASSES
from trellis.read_model.wasm_pods.reasons import Reason
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster

RETRIES = 120.0
"""Seconds until the controller of ReplicaSets has retried to create pods that were refused."""


@pytest.fixture
def accounts(cluster_api: Api, namespace: str) -> Iterator[Accounts]:
    define(cluster_api)
    found = Accounts(cluster_api, namespace)
    yield found
    found.leave()


@pytest.fixture
def served(cluster_api: Api, namespace: str) -> Iterator[ServedWasmPods]:
    found = ServedWasmPods(cluster_api, namespace)
    yield found
    found.leave()


async def test_an_owner_is_shown_with_its_cause_and_a_new_runtime_class_changes_it(
    cluster: ClusterInfo, accounts: Accounts, served: ServedWasmPods
) -> None:
    token = accounts.create("admin")
    accounts.allow("admin", READ_ALL)
    hello, lost = served.ids().values()
    query = f"?namespaces={served.namespace}"
    async with run_console(cluster) as console, console.browser(token) as browser, tab(browser, query) as page:
        await page.until(lambda seen: {hello, lost} <= seen.entities.keys())
        await page.until(lambda seen: seen.entities[hello]["pods"] == {"all": 2, "ready": 0})
        await page.until(lambda seen: seen.entities[lost]["reason"] == Reason.RUNTIME_CLASS_MISSING)
        await page.until(lambda seen: seen.entities[hello]["shim"] == f"shim/{served.shim}")
        await page.until(lambda seen: seen.entities["part/spinapps"]["lacking"] == [])
        async with browser.get(f"/api/explain/{lost}") as answer:
            assert (await answer.json())["reason"] == Reason.RUNTIME_CLASS_MISSING
        served.create_class(served.lost_shim)
        await page.until(lambda seen: seen.entities[lost]["pods"] == {"all": 2, "ready": 0}, RETRIES)
        assert served.api.call("DELETE", RUNTIME_CLASSES.path(name=served.lost_shim))[0] == http.HTTPStatus.OK


async def test_a_viewer_without_deployments_sees_their_pods_and_the_missing_permission(
    cluster: ClusterInfo, accounts: Accounts, served: ServedWasmPods
) -> None:
    token = accounts.create("tenant")
    accounts.allow("tenant", [rule("", "pods"), rule("", "events")], namespace=served.namespace)
    accounts.allow("tenant", [rule("runtime.spinkube.dev", "shims"), rule("node.k8s.io", "runtimeclasses")])
    hello = served.ids()["hello"]
    query = f"?namespaces={served.namespace}"
    async with run_console(cluster) as console, console.browser(token) as browser, tab(browser, query) as page:
        seen = await page.until(lambda seen: hello in seen.entities and seen.entities[hello]["pods"])
        await page.until(lambda seen: seen.entities[hello]["pods"] == {"all": 2, "ready": 0})
        await page.until(lambda seen: seen.entities["part/deployments"]["lacking"])
        await page.until(lambda seen: seen.entities["part/wasmpods"]["lacking"] == [])
        assert seen.entities[hello]["desired"] is None
