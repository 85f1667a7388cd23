"""Refusals of the API server and their messages: preconditions, deletions, bodies. Part of kube_behaviour."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from support.cluster.kube_world import MANAGER, configmap, eventually, reference
from trellis.kube.client import Kube
from trellis.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound, PatchTestFailed
from trellis.kube.preconditions import only_if
from trellis.kube.resources import CONFIGMAPS, NAMESPACES, Manifest

Write = Callable[[Kube, Manifest], Awaitable[Any]]
CONTROLLERS = 60.0
"""Seconds the real cluster's controllers may take on a busy machine."""


def read(manifest: Manifest) -> dict[str, str]:
    """Return the part of an object that a write names as its precondition."""
    return {name: manifest["metadata"][name] for name in ("uid", "resourceVersion")}


def merge(kube: Kube, seen: Manifest) -> Awaitable[Any]:
    patch = {"metadata": read(seen), "data": {"x": "late"}}
    return kube.merge_patch(CONFIGMAPS, "a", patch, seen["metadata"]["namespace"], field_manager=MANAGER)


def json_patch(kube: Kube, seen: Manifest) -> Awaitable[Any]:
    ops = [*only_if(**named(seen)), {"op": "add", "path": "/data/x", "value": "late"}]
    return kube.json_patch(CONFIGMAPS, "a", ops, seen["metadata"]["namespace"], field_manager=MANAGER)


def named(manifest: Manifest) -> dict[str, str]:
    return {"uid": manifest["metadata"]["uid"], "resource_version": manifest["metadata"]["resourceVersion"]}


def apply(kube: Kube, seen: Manifest) -> Awaitable[Any]:
    target = reference(seen)
    target["metadata"] |= read(seen)
    return kube.apply(CONFIGMAPS, target | {"data": {"x": "late"}}, field_manager=MANAGER)


def replace(kube: Kube, seen: Manifest) -> Awaitable[Any]:
    return kube.replace(CONFIGMAPS, seen | {"data": {"x": "late"}})


def delete(kube: Kube, seen: Manifest) -> Awaitable[Any]:
    return kube.delete(CONFIGMAPS, "a", seen["metadata"]["namespace"], **named(seen))


WRITES = [merge, json_patch, apply, replace, delete]
every_write = pytest.mark.parametrize("write", WRITES, ids=[write.__name__ for write in WRITES])


class PreconditionBehaviour:
    """A write that names uid and resourceVersion is carried out on nothing but what was read."""

    @every_write
    async def test_a_write_on_what_was_read_is_carried_out(self, kube: Kube, namespace: str, write: Write) -> None:
        await write(kube, await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1")))

    @every_write
    async def test_a_write_on_a_changed_object_is_a_conflict(self, kube: Kube, namespace: str, write: Write) -> None:
        seen = await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        patch = {"data": {"other": "1"}}
        await kube.merge_patch(CONFIGMAPS, "a", patch, namespace, field_manager=MANAGER)
        with pytest.raises(Conflict) as caught:
            await write(kube, seen)
        assert caught.value.status == (422 if write is json_patch else 409)
        assert (await kube.get(CONFIGMAPS, "a", namespace))["data"] == {"x": "1", "other": "1"}

    @every_write
    async def test_a_write_on_a_successor_of_the_same_name_is_a_conflict(
        self, kube: Kube, namespace: str, write: Write
    ) -> None:
        seen = await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        await kube.delete(CONFIGMAPS, "a", namespace, uid=seen["metadata"]["uid"])
        await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        with pytest.raises(Conflict):
            await write(kube, seen)
        assert (await kube.get(CONFIGMAPS, "a", namespace))["data"] == {"x": "1"}

    @every_write
    async def test_a_write_on_a_deleted_object_makes_no_ghost(self, kube: Kube, namespace: str, write: Write) -> None:
        seen = await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        await kube.delete(CONFIGMAPS, "a", namespace, uid=seen["metadata"]["uid"])
        with pytest.raises(Conflict if write is apply else NotFound):
            await write(kube, seen)
        with pytest.raises(NotFound):
            await kube.get(CONFIGMAPS, "a", namespace)

    async def test_an_apply_that_names_the_version_alone_does_make_a_ghost(self, kube: Kube, namespace: str) -> None:
        """The uid is needed as well: for a deleted object the server compares nothing else."""
        seen = await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        await kube.delete(CONFIGMAPS, "a", namespace, uid=seen["metadata"]["uid"])
        ghost = configmap(namespace, "a", x="2")
        ghost["metadata"]["resourceVersion"] = seen["metadata"]["resourceVersion"]
        made = await kube.apply(CONFIGMAPS, ghost, field_manager=MANAGER, create_if_missing=True)
        assert made["metadata"]["uid"] != seen["metadata"]["uid"]

    @pytest.mark.parametrize("path", ["/metadata/uid", "/metadata/resourceVersion"])
    async def test_each_test_of_a_json_patch_counts(self, kube: Kube, namespace: str, path: str) -> None:
        seen = await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        ops = [op | ({"value": "another"} if op["path"] == path else {}) for op in only_if(**named(seen))]
        ops.append({"op": "add", "path": "/data/x", "value": "late"})
        with pytest.raises(PatchTestFailed):
            await kube.json_patch(CONFIGMAPS, "a", ops, namespace, field_manager=MANAGER)

    async def test_an_apply_that_changes_nothing_keeps_the_version(self, kube: Kube, namespace: str) -> None:
        made = await kube.apply(
            CONFIGMAPS, configmap(namespace, "a", x="1"), field_manager=MANAGER, create_if_missing=True
        )
        again = await kube.apply(CONFIGMAPS, reference(made) | {"data": {"x": "1"}}, field_manager=MANAGER)
        assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


class RefusalBehaviour:
    """Bodies and moments that the server does not accept."""

    @pytest.mark.parametrize(
        ("change", "status", "expected_text"),
        [
            ({"metadata": {"name": "Bad_Name"}}, 422, 'ConfigMap "Bad_Name" is invalid: metadata.name: Invalid value'),
            ({"kind": "Secret"}, 400, 'Secret in version "v1" cannot be handled as a ConfigMap'),
            ({"data": {"x": 1}}, 400, "cannot unmarshal"),
            ({"data": {"x": "y" * 1_200_000}}, 422, "Too long: may not be more than 1048576 bytes"),
            ({"data": {"x": "y" * 3_200_000}}, 413, "Request entity too large: limit is 3145728"),
        ],
        ids=["a bad name", "another kind", "a wrong type", "more than an object holds", "more than a request holds"],
    )
    async def test_a_body_that_is_wrong_is_invalid(
        self, kube: Kube, namespace: str, change: Manifest, status: int, expected_text: str
    ) -> None:
        manifest = configmap(namespace, "a")
        manifest |= change | {"metadata": manifest["metadata"] | change.get("metadata", {})}
        with pytest.raises(Invalid, match="cannot CREATE ConfigMap") as caught:
            await kube.create(CONFIGMAPS, manifest)
        assert caught.value.status == status
        assert expected_text in caught.value.message

    async def test_an_object_that_was_read_cannot_be_created(self, kube: Kube, namespace: str) -> None:
        manifest = configmap(namespace, "a")
        manifest["metadata"]["resourceVersion"] = "5"
        with pytest.raises(KubeError, match="resourceVersion should not be set on objects to be created"):
            await kube.create(CONFIGMAPS, manifest)

    async def test_a_patch_cannot_change_the_name(self, kube: Kube, namespace: str) -> None:
        await kube.create(CONFIGMAPS, configmap(namespace, "a"))
        with pytest.raises(Invalid, match="does not match the name on the URL"):
            await kube.merge_patch(CONFIGMAPS, "a", {"metadata": {"name": "b"}}, namespace, field_manager=MANAGER)

    async def test_an_object_in_deletion_takes_changes_but_no_new_finalizer(self, kube: Kube, namespace: str) -> None:
        made = await self._in_deletion(kube, namespace)
        uid = made["metadata"]["uid"]
        await kube.delete(CONFIGMAPS, "a", namespace, uid=uid)
        changed = await kube.merge_patch(CONFIGMAPS, "a", {"data": {"x": "2"}}, namespace, field_manager=MANAGER)
        assert changed["data"] == {"x": "2"}
        more = {"metadata": {"finalizers": ["trellis.dev/test", "trellis.dev/more"]}}
        with pytest.raises(Invalid, match="no new finalizers can be added if the object is being deleted"):
            await kube.merge_patch(CONFIGMAPS, "a", more, namespace, field_manager=MANAGER)

    async def test_an_object_in_deletion_cannot_be_revived_or_replaced(self, kube: Kube, namespace: str) -> None:
        await self._in_deletion(kube, namespace)
        revive = {"metadata": {"deletionTimestamp": None}}
        revived = await kube.merge_patch(CONFIGMAPS, "a", revive, namespace, field_manager=MANAGER)
        assert revived["metadata"]["deletionTimestamp"]
        with pytest.raises(AlreadyExists, match="object is being deleted"):
            await kube.create(CONFIGMAPS, configmap(namespace, "a"))

    async def test_a_namespace_in_deletion_takes_nothing_new_and_goes_with_its_last_object(
        self, kube: Kube, namespace: str
    ) -> None:
        name = f"{namespace}-ending"
        await kube.ensure_namespace(name, {})
        await self._held(kube, name)
        await kube.create(CONFIGMAPS, configmap(name, "b"))
        space = await kube.get(NAMESPACES, name)
        await kube.delete(NAMESPACES, name, uid=space["metadata"]["uid"])
        with pytest.raises(Forbidden, match=f"unable to create new content in namespace {name}"):
            await kube.create(CONFIGMAPS, configmap(name, "late"))
        await eventually(lambda: is_deleted(kube, name, "b"), "its objects are deleted", CONTROLLERS)
        assert (await kube.get(NAMESPACES, name))["metadata"]["deletionTimestamp"]
        await eventually(lambda: is_marked(kube, name, "a"), "this one too, but for its finalizer", CONTROLLERS)
        release = {"metadata": {"finalizers": None}}
        await kube.merge_patch(CONFIGMAPS, "a", release, name, field_manager=MANAGER)

        async def namespace_is_deleted() -> bool:
            return not [item for item in (await kube.list(NAMESPACES)).items if item["metadata"]["name"] == name]

        await eventually(namespace_is_deleted, "the namespace goes", CONTROLLERS)

    async def _held(self, kube: Kube, namespace: str) -> Manifest:
        manifest = configmap(namespace, "a", x="1")
        manifest["metadata"]["finalizers"] = ["trellis.dev/test"]
        return await kube.create(CONFIGMAPS, manifest)

    async def _in_deletion(self, kube: Kube, namespace: str) -> Manifest:
        made = await self._held(kube, namespace)
        await kube.delete(CONFIGMAPS, "a", namespace, uid=made["metadata"]["uid"])
        return made


async def is_deleted(kube: Kube, namespace: str, name: str) -> bool:
    """Return whether an object is deleted; what is in deletion is not."""
    await asyncio.sleep(0)
    return not (await kube.list(CONFIGMAPS, namespace, field_selector=f"metadata.name={name}")).items


async def is_marked(kube: Kube, namespace: str, name: str) -> bool:
    """Say whether an object is in deletion."""
    return "deletionTimestamp" in (await kube.get(CONFIGMAPS, name, namespace))["metadata"]
