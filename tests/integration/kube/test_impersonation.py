"""Reading as another user: the API server decides, and a caller without permissions learns nothing."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable

import pytest

from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound, NotLeading
from trellis.kube.reader import Selection
from trellis.kube.resources import CONFIGMAPS, ROLE_BINDINGS, ROLES, SECRETS

pytestmark = pytest.mark.cluster


def account(namespace: str, name: str = "reader") -> str:
    return f"system:serviceaccount:{namespace}:{name}"


async def until_permitted(ask: Callable[[], Awaitable[object]]) -> None:
    """Wait until the API server's authorizer knows a Role that was created just now: its watch tells it."""
    async with asyncio.timeout(20):
        while True:
            try:
                await ask()
            except Forbidden:
                await asyncio.sleep(0.05)
            else:
                return


@pytest.fixture
async def secret(kube: Kube, namespace: str) -> str:
    """A Secret that every ServiceAccount of its namespace may read, by their group, and nobody else."""
    data = {"password": base64.b64encode(b"hunter2").decode()}
    metadata = {"name": "db", "namespace": namespace}
    await kube.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    rules = [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["db", "gone"], "verbs": ["get"]}]
    await kube.create(ROLES, {"metadata": {"name": "read", "namespace": namespace}, "rules": rules})
    api = "rbac.authorization.k8s.io"
    group = {"kind": "Group", "apiGroup": api, "name": f"system:serviceaccounts:{namespace}"}
    binding = {"roleRef": {"kind": "Role", "apiGroup": api, "name": "read"}, "subjects": [group]}
    await kube.create(ROLE_BINDINGS, {"metadata": {"name": "read", "namespace": namespace}} | binding)
    reader = kube.acting_as(account(namespace))
    await until_permitted(lambda: reader.get(SECRETS, "db", namespace, metadata=True))
    return "db"


async def test_the_server_knows_the_groups_of_an_account(kube: Kube, namespace: str, secret: str) -> None:
    found = await kube.acting_as(account(namespace)).get(SECRETS, secret, namespace)
    assert base64.b64decode(found["data"]["password"]) == b"hunter2"


async def test_a_user_is_in_no_group_of_accounts(kube: Kube, namespace: str, secret: str) -> None:
    with pytest.raises(Forbidden):
        await kube.acting_as("somebody").get(SECRETS, secret, namespace)


async def test_metadata_alone_leaves_the_server_without_the_values(kube: Kube, namespace: str, secret: str) -> None:
    found = await kube.acting_as(account(namespace)).get(SECRETS, secret, namespace, metadata=True)
    assert found["kind"] == "PartialObjectMetadata"
    assert "data" not in found
    assert found["metadata"]["resourceVersion"]


async def test_a_missing_object_looks_forbidden_to_viewers_without_permission(
    kube: Kube, namespace: str, secret: str
) -> None:
    with pytest.raises(NotFound):
        await kube.acting_as(account(namespace)).get(SECRETS, "gone", namespace)
    texts = []
    for name in (secret, "nothing-of-the-kind"):
        with pytest.raises(Forbidden) as refused:
            await kube.acting_as("somebody").get(SECRETS, name, namespace)
        texts.append(refused.value.message.replace(f'"{name}"', "NAME"))
    assert texts[0] == texts[1]


async def test_every_verb_is_executed_as_the_account_and_none_with_the_permissions_of_trellis(
    kube: Kube, namespace: str
) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "list", "patch", "delete", "watch"]}]
    await kube.create(ROLES, {"metadata": {"name": "write", "namespace": namespace}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "writer", "namespace": namespace}
    binding = {"roleRef": {"kind": "Role", "apiGroup": ROLES.group, "name": "write"}, "subjects": [subject]}
    await kube.create(ROLE_BINDINGS, {"metadata": {"name": "write", "namespace": namespace}} | binding)
    writer, other = kube.acting_as(account(namespace, "writer")), kube.acting_as(account(namespace, "other"))
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made", "namespace": namespace}}
    await until_permitted(lambda: writer.list(CONFIGMAPS, namespace))

    made = await writer.create(CONFIGMAPS, manifest, field_manager="test")
    patch = {"data": {"a": "b"}}
    await writer.merge_patch(CONFIGMAPS, "made", patch, namespace, field_manager="test")
    applied = manifest | {"metadata": {**manifest["metadata"], "uid": made["metadata"]["uid"]}, "data": {"c": "d"}}
    assert (await writer.apply(CONFIGMAPS, applied, field_manager="apply"))["data"] == {"a": "b", "c": "d"}
    listing = await writer.list(CONFIGMAPS, namespace)
    selection = Selection(CONFIGMAPS, namespace)
    async with writer.watch(selection, made["metadata"]["resourceVersion"], seconds=10, idle_seconds=10) as events:
        assert (await anext(events)).object["data"] == {"a": "b"}

    for call in (
        writer.get(CONFIGMAPS, "made", namespace),
        writer.replace(CONFIGMAPS, listing.items[0]),
        other.create(CONFIGMAPS, manifest),
        other.merge_patch(CONFIGMAPS, "made", patch, namespace, field_manager="test"),
        other.list(CONFIGMAPS, namespace),
        other.delete(CONFIGMAPS, "made", namespace, uid=made["metadata"]["uid"]),
    ):
        with pytest.raises(Forbidden, match=f"system:serviceaccount:{namespace}:"):
            await call
    with pytest.raises(Forbidden):
        async with other.watch(selection, "", seconds=10, idle_seconds=10):
            pass
    await writer.delete(CONFIGMAPS, "made", namespace, uid=made["metadata"]["uid"])


async def test_a_view_of_a_leader_asks_its_guard_as_well(kube: Kube, namespace: str) -> None:
    def refuse() -> None:
        raise NotLeading("not any more")

    view = kube.guarded(refuse).acting_as(account(namespace))
    metadata = {"name": "made", "namespace": namespace}
    with pytest.raises(NotLeading):
        await view.create(CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
