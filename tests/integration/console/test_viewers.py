"""A console in front of a real API server: real tokens, real RBAC, changes by kubectl."""

from __future__ import annotations

import http
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from console.timings import Timings
from support.cluster.grants import granted, manifests, until_bound
from support.console import seen_objects as objects
from support.console.viewers import Page
from support.console.viewing import READ_ALL, Accounts, rule, run_console, tab
from support.guests.controllers_world import define
from support.nats.buses import eventually_async
from trellis.read_model.live.watching import viewer_timings
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster
QUICK = Timings(
    sweep=0.05,
    recheck=0.1,
    permissions=0.1,
    watch=replace(viewer_timings(), watch=(1, 1), lived=0.5, refused=0.2),
)
CONTROLLERS = "/apis/trellis.dev/v1alpha1/namespaces/{}/wasmcontrollers"


@pytest.fixture
def accounts(cluster_api: Api, namespace: str) -> Iterator[Accounts]:
    define(cluster_api)
    found = Accounts(cluster_api, namespace)
    yield found
    found.leave()


@pytest.fixture
def node(cluster_api: Api) -> Iterator[str]:
    name = f"seen-{secrets.token_hex(4)}"
    assert cluster_api.call("POST", "/api/v1/nodes", named_node(name))[0] == http.HTTPStatus.CREATED
    yield name
    cluster_api.call("DELETE", f"/api/v1/nodes/{name}")


def named_node(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node"} | objects.node(name)


def controller(name: str) -> dict[str, object]:
    spec = {
        "serviceAccountName": "default",
        "module": {"configMap": {"name": "module", "key": "module.wasm"}},
        "watches": [{"apiVersion": "v1", "kind": "ConfigMap"}],
    }
    return {"apiVersion": "trellis.dev/v1alpha1", "kind": "WasmController", "metadata": {"name": name}, "spec": spec}


async def test_changes_by_kubectl_reach_the_page(
    cluster: ClusterInfo, cluster_api: Api, accounts: Accounts, node: str
) -> None:
    token = accounts.create("admin")
    accounts.allow("admin", READ_ALL)
    async with run_console(cluster) as console, console.browser(token) as browser, tab(browser) as page:
        await page.until(lambda seen: f"node/{node}" in seen.entities)
        for value in ("true", "false", "maybe", "true", "false"):
            opt_in = {"maybe": "invalid"}.get(value, value)
            patch = {"metadata": {"annotations": {"kwasm.sh/kwasm-node": value}}}
            status, _ = cluster_api.call("PATCH", f"/api/v1/nodes/{node}", patch)
            assert status == http.HTTPStatus.OK
            await page.until(lambda seen, wanted=opt_in: seen.entities[f"node/{node}"]["opt_in"] == wanted)


def lacking(seen: Page, part: str) -> list[str]:
    """Return the namespaces for which a viewer lacks permissions for a part."""
    return [item["namespace"] for item in (seen.entities.get(part) or {}).get("lacking") or ()]


async def test_a_viewer_of_one_namespace_sees_only_that_namespace(
    cluster: ClusterInfo, cluster_api: Api, accounts: Accounts, node: str
) -> None:
    token = accounts.create("tenant")
    accounts.allow("tenant", READ_ALL, namespace=accounts.namespace)
    path = CONTROLLERS.format(accounts.namespace)
    assert cluster_api.call("POST", path, controller("ring"))[0] == http.HTTPStatus.CREATED
    async with run_console(cluster) as console, console.browser(token) as browser:
        async with tab(browser, f"?namespaces={accounts.namespace},kube-system") as page:
            key = f"controller/{accounts.namespace}/ring"
            seen = await page.until(lambda seen: key in seen.entities and "part/nodes" in seen.entities)
            await page.until(lambda seen: seen.entities["part/nodes"]["lacking"])
            await page.until(lambda seen: lacking(seen, "part/controllers") == ["kube-system"])
            assert f"node/{node}" not in seen.entities
        async with browser.get(f"/api/explain/node/{node}") as answer:
            assert answer.status == http.HTTPStatus.FORBIDDEN
        async with browser.get(f"/api/explain/controller/{accounts.namespace}/ring") as answer:
            assert (await answer.json())["ok"] is False


async def test_a_revoked_permission_hides_its_objects(
    cluster: ClusterInfo, cluster_api: Api, accounts: Accounts
) -> None:
    token = accounts.create("tenant")
    take_away = accounts.allow("tenant", READ_ALL, namespace=accounts.namespace)
    path = CONTROLLERS.format(accounts.namespace)
    assert cluster_api.call("POST", path, controller("ring"))[0] == http.HTTPStatus.CREATED
    key = f"controller/{accounts.namespace}/ring"
    async with (
        run_console(cluster, timings=QUICK) as console,
        console.browser(token) as browser,
        tab(browser, f"?namespaces={accounts.namespace}") as page,
    ):
        await page.until(lambda seen: key in seen.entities)
        take_away()
        await page.until(lambda seen: key not in seen.entities)


async def test_a_revoked_token_ends_its_streams(cluster: ClusterInfo, accounts: Accounts) -> None:
    token = accounts.create("gone")
    accounts.allow("gone", READ_ALL)
    async with run_console(cluster, timings=QUICK) as console, console.browser(token) as browser, tab(browser) as page:
        await page.until(lambda seen: "part/nodes" in seen.entities)
        accounts.delete("gone")
        await page.until(lambda seen: seen.messages[-1].event == "bye")  # the API server knows a token for 10 s longer
        assert page.page.messages[-1].data == {"reason": "login"}

        async def is_out() -> bool:
            async with browser.get("/api/session") as answer:
                return answer.status == http.HTTPStatus.UNAUTHORIZED

        await eventually_async(is_out)


async def test_a_wrong_token_is_refused_by_the_api_server(cluster: ClusterInfo) -> None:
    async with run_console(cluster) as console:
        with pytest.raises(AssertionError, match=r"^401 "):
            async with console.browser("eyJhbGciOiJSUzI1NiJ9.e30.x"):
                pass


async def test_behind_a_proxy_the_consoles_account_may_impersonate_and_nothing_more(
    cluster: ClusterInfo, cluster_api: Api, accounts: Accounts, node: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 40)
    viewing = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"viewing-{accounts.namespace}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": accounts.namespace}],
    }
    accounts.api.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", viewing)
    until_bound(accounts.api, viewing)
    accounts.made.append(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/viewing-{accounts.namespace}")
    settings = {"console_auth": "proxy", "console_proxy_secret_file": secret}
    jane = {"X-Forwarded-User": "jane", "X-Trellis-Proxy-Secret": "s" * 40}
    group = {"X-Forwarded-Groups": f"dev, {accounts.namespace}"}
    with granted(cluster, cluster_api, "trellis-console", tmp_path) as account:
        account.apply(manifests("console.yaml") + manifests("console-proxy.yaml"))
        settings |= {"kubeconfig": account.kubeconfig}
        async with run_console(cluster, **settings) as console, aiohttp.ClientSession(base_url=console.url) as browser:
            async with browser.get(f"/api/explain/node/{node}", headers=jane) as answer:
                assert answer.status == http.HTTPStatus.FORBIDDEN
            async with browser.get(f"/api/explain/node/{node}", headers=jane | group) as answer:
                assert answer.status == http.HTTPStatus.OK
            async with tab(browser, **jane, **group) as page:
                await page.until(lambda seen: f"node/{node}" in seen.entities)


async def test_a_right_to_what_is_no_object_is_given_by_rbac_alone(cluster: ClusterInfo, accounts: Accounts) -> None:
    token = accounts.create("reader")
    path = "/api/traces/" + "ab" * 16
    async with run_console(cluster, timings=QUICK) as console, console.browser(token) as browser:
        async with browser.get(path) as answer:
            assert answer.status == http.HTTPStatus.FORBIDDEN
        accounts.allow("reader", [rule("console.trellis.dev", "traces", "get")])

        async def is_allowed() -> bool:
            async with browser.get(path) as answer:
                return answer.status == http.HTTPStatus.NOT_FOUND  # it knows of no Jaeger

        await eventually_async(is_allowed, 30)
