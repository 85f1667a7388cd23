"""Accounts see the objects that the real API server permits, and a CRD that is created later is watched."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from controller_host.domain.keys import ObjectKey
from controller_host.domain.watch_specs import specs_of
from controller_host.timings import CacheTimings
from controller_host.watches.reviews import Reviews, groups_of
from controller_host.watches.shared_watches import SharedWatches, WatchContext
from support.cluster.kube_world import eventually, until
from trellis.crds.wasm_controllers import Watch
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.discovery import Discovery
from trellis.kube.resources import (
    CONFIGMAPS,
    DEFINITIONS,
    JOBS,
    NODES,
    ROLE_BINDINGS,
    ROLES,
    Manifest,
    Resource,
)
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster import ClusterInfo

pytestmark = pytest.mark.cluster

API = "rbac.authorization.k8s.io"
QUICK = CacheTimings(linger=0.1, look=0.1, absent=0.2)


@pytest.fixture
async def kube(cluster: ClusterInfo) -> AsyncIterator[Kube]:
    name = f"test_{secrets.token_hex(4)}"
    connection = await Kube.connect(Access(Path(cluster.kubeconfig)), telemetry=setup(name), health=Health(name))
    await connection.wait_available()
    yield connection
    await connection.close()


async def grant(kube: Kube, namespace: str, name: str, verbs: list[str], subject: Manifest) -> None:
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": verbs}]
    metadata = {"name": name, "namespace": namespace}
    await kube.create(ROLES, {"metadata": metadata, "rules": rules})
    binding = {"roleRef": {"kind": "Role", "apiGroup": API, "name": name}, "subjects": [subject]}
    await kube.create(ROLE_BINDINGS, {"metadata": metadata} | binding)


async def test_an_account_sees_what_it_and_its_groups_may_list_and_watch(kube: Kube, namespace: str) -> None:
    group = {"kind": "Group", "apiGroup": API, "name": f"system:serviceaccounts:{namespace}"}
    await grant(
        kube, namespace, "one", ["list", "watch"], {"kind": "ServiceAccount", "name": "one"} | {"namespace": namespace}
    )
    await grant(
        kube, namespace, "half", ["list"], {"kind": "ServiceAccount", "name": "half"} | {"namespace": namespace}
    )
    user = f"system:serviceaccount:{namespace}:"

    async def allowed(name: str, resource: Resource = JOBS, place: str = namespace) -> bool | None:
        return await Reviews(kube).allowed(f"{user}{name}", resource, place)

    # What RBAC was told it may take a moment to know.
    await eventually(lambda: _is(allowed("one"), True), "the Role counts")
    assert await allowed("half") is False
    assert await allowed("nobody") is False
    assert await allowed("one", CONFIGMAPS) is False
    assert await allowed("one", JOBS, "default") is False
    assert await allowed("one", JOBS, "") is False
    assert await allowed("one", NODES, "") is False
    await grant(kube, namespace, "all", ["list", "watch"], group)
    await eventually(lambda: _is(allowed("nobody"), True), "the group counts")


async def _is(answer: Any, wanted: bool) -> bool:
    return (await answer) is wanted


async def test_the_computed_groups_of_a_service_account_are_those_of_the_server(kube: Kube, namespace: str) -> None:
    user = f"system:serviceaccount:{namespace}:somebody"
    reviews = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
    found = await kube.acting_as(user).create(reviews, {"metadata": {"name": ""}})
    assert found["status"]["userInfo"]["username"] == user
    assert sorted(found["status"]["userInfo"]["groups"]) == sorted(groups_of(user))


@asynccontextmanager
async def watching(kube: Kube, discovery: Discovery, *granted: str) -> AsyncIterator[SharedWatches]:
    context = WatchContext(kube, discovery, Reviews(kube))
    watches = SharedWatches(context, granted, timings=QUICK)
    task = asyncio.create_task(watches.run())
    try:
        yield watches
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_definition_that_comes_later_is_watched_and_followed_when_it_goes(kube: Kube, namespace: str) -> None:
    group = f"g{secrets.token_hex(4)}.example.com"
    api_version = f"{group}/v1"
    widgets = Resource(group, "v1", "widgets", "Widget", namespaced=True)
    key = ObjectKey(api_version, "Widget", namespace, "one")
    notified: list[tuple[str, ObjectKey]] = []
    async with watching(kube, Discovery(kube, clock=_Leaps()), f"{api_version}/Widget") as watches:
        watch = Watch.model_validate({"apiVersion": api_version, "kind": "Widget"})
        watches.want("team/c", specs_of([watch], namespace), lambda *changed: notified.append(changed))
        await until(lambda: bool(watches.refused("team/c")), "the kind is missed")
        await kube.create(DEFINITIONS, definition(group))
        await eventually(lambda: _served(kube, widgets), "the kind is served")
        await kube.create(widgets, widget(api_version, namespace, "one"))
        await until(lambda: ("team/c", key) in notified, "the object is told")
        assert orjson.loads(watches.item(key) or b"")["spec"] == {"size": 3}
        assert watches.refused("team/c") == {}
        notified.clear()
        made = await kube.get(DEFINITIONS, f"widgets.{group}")
        await kube.delete(DEFINITIONS, f"widgets.{group}", uid=made["metadata"]["uid"])
        await until(lambda: ("team/c", key) in notified and bool(watches.refused("team/c")), "the kind goes")
        assert watches.item(key) is None


@pytest.mark.thorough
async def test_a_list_and_a_watch_show_the_same_of_an_object(kube: Kube, namespace: str) -> None:
    """Items of lists do not say their kind, and both have managedFields."""
    manifest: Manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": namespace}}
    key = ObjectKey("v1", "ConfigMap", namespace, "one")
    watch = Watch.model_validate({"apiVersion": "v1", "kind": "ConfigMap"})
    made = await kube.create(CONFIGMAPS, manifest | {"data": {"a": "b"}})
    async with watching(kube, Discovery(kube), "v1/ConfigMap") as watches:
        watches.want("team/c", specs_of([watch], namespace), lambda *_: None)
        await until(lambda: watches.whole("team/c"), "all is listed")
        listed = orjson.loads(watches.item(key) or b"")
        await kube.delete(CONFIGMAPS, "one", namespace, uid=made["metadata"]["uid"])
        await until(lambda: watches.item(key) is None, "it goes")
        await kube.create(CONFIGMAPS, manifest | {"data": {"a": "b"}})
        await until(lambda: watches.item(key) is not None, "it comes")
        watched = orjson.loads(watches.item(key) or b"")
    assert list(listed) == list(watched) == ["apiVersion", "kind", "metadata", "data"]
    assert list(listed["metadata"]) == list(watched["metadata"])
    assert "managedFields" not in listed["metadata"]


class _Leaps:
    """A clock that lets nothing be kept."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 100.0
        return self.now


async def _served(kube: Kube, resource: Resource) -> bool:
    with contextlib.suppress(Exception):
        await kube.list(resource)
        return True
    return False


def widget(api_version: str, namespace: str, name: str) -> Manifest:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": api_version, "kind": "Widget", "metadata": metadata, "spec": {"size": 3}}


def definition(group: str) -> Manifest:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
