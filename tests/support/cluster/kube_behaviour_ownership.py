"""Ownership of fields and objects: field managers, garbage collection. Part of kube_behaviour."""

from __future__ import annotations

import pytest

from support.cluster.kube_behaviour_preconditions import CONTROLLERS, is_deleted, is_marked
from support.cluster.kube_world import MANAGER, configmap, eventually, reference
from trellis.kube.client import Kube
from trellis.kube.errors import Conflict
from trellis.kube.resources import CONFIGMAPS, NODES, Manifest


class ManagerBehaviour:
    """Two managers of one object."""

    async def _apply(self, kube: Kube, target: Manifest, manager: str, **data: str) -> dict[str, str]:
        applied = await kube.apply(CONFIGMAPS, reference(target) | {"data": data}, field_manager=manager)
        return dict(applied.get("data") or {})

    async def _made_by(self, kube: Kube, manager: str, namespace: str, **data: str) -> Manifest:
        manifest = configmap(namespace, "a", **data)
        return await kube.apply(CONFIGMAPS, manifest, field_manager=manager, create_if_missing=True)

    async def test_a_field_taken_by_another_manager_is_no_longer_the_first_ones_to_remove(
        self, kube: Kube, namespace: str
    ) -> None:
        made = await self._made_by(kube, "one", namespace, x="1", y="1")
        assert await self._apply(kube, made, "two", x="2") == {"x": "2", "y": "1"}
        assert await self._apply(kube, made, "one") == {"x": "2"}
        assert await self._apply(kube, made, "one", x="1") == {"x": "1"}
        assert await self._apply(kube, made, "two") == {"x": "1"}
        assert await self._apply(kube, made, "one") == {}

    async def test_a_field_that_two_agree_on_goes_with_the_second(self, kube: Kube, namespace: str) -> None:
        made = await self._made_by(kube, "one", namespace, x="1")
        await self._apply(kube, made, "two", x="1")
        assert await self._apply(kube, made, "one") == {"x": "1"}
        assert await self._apply(kube, made, "two") == {}

    async def test_a_field_that_was_created_stays_when_an_apply_leaves_it_out(self, kube: Kube, namespace: str) -> None:
        """Create and apply are two owners, even of one name: what is to be removed by apply has to be made by it."""
        made = await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        await self._apply(kube, made, "one", x="1")
        assert await self._apply(kube, made, "one") == {"x": "1"}

    async def test_a_field_that_a_person_changed_is_the_others_until_it_is_applied_again(
        self, kube: Kube, namespace: str
    ) -> None:
        made = await self._made_by(kube, "one", namespace, x="1")
        await kube.merge_patch(CONFIGMAPS, "a", {"data": {"x": "2"}}, namespace, field_manager="kubectl")
        assert await self._apply(kube, made, "one") == {"x": "2"}
        assert await self._apply(kube, made, "one", x="1") == {"x": "1"}
        assert await self._apply(kube, made, "one") == {}

    async def test_an_apply_without_force_takes_no_field_of_another_manager(self, kube: Kube, namespace: str) -> None:
        made = await self._made_by(kube, "one", namespace, x="1")
        wanted = reference(made) | {"data": {"x": "2", "y": "2"}}
        with pytest.raises(Conflict):
            await kube.apply_unless_owned(CONFIGMAPS, wanted, field_manager="two")
        assert (await kube.get(CONFIGMAPS, "a", namespace))["data"] == {"x": "1"}
        agreed = reference(made) | {"data": {"x": "1", "y": "2"}}
        assert (await kube.apply_unless_owned(CONFIGMAPS, agreed, field_manager="two"))["data"] == {"x": "1", "y": "2"}

    async def test_an_apply_without_force_changes_the_fields_of_its_own_manager(
        self, kube: Kube, namespace: str
    ) -> None:
        made = await self._made_by(kube, "one", namespace, x="1", y="1")
        wanted = reference(made) | {"data": {"x": "2"}}
        assert (await kube.apply_unless_owned(CONFIGMAPS, wanted, field_manager="one"))["data"] == {"x": "2"}

    async def test_an_apply_of_the_first_version_creates_and_changes_no_object(
        self, kube: Kube, namespace: str
    ) -> None:
        """No object has the first revision of etcd: a missing object is created by its manager, any other refused."""
        wanted = configmap(namespace, "a", x="1", y="1")
        wanted["metadata"]["resourceVersion"] = "1"
        made = await kube.apply_unless_owned(CONFIGMAPS, wanted, field_manager="one")
        assert made["data"] == {"x": "1", "y": "1"}
        with pytest.raises(Conflict):
            await kube.apply_unless_owned(CONFIGMAPS, wanted, field_manager="one")
        with pytest.raises(Conflict):
            await kube.apply_unless_owned(CONFIGMAPS, wanted, field_manager="two")
        assert await self._apply(kube, made, "one", x="1") == {"x": "1"}, "its fields belong to applies of its manager"

    async def test_a_refused_apply_changes_no_ownership(self, kube: Kube, namespace: str) -> None:
        made = await self._made_by(kube, "one", namespace, x="1")
        stale = reference(made)
        stale["metadata"]["resourceVersion"] = "1"
        with pytest.raises(Exception, match="409 Conflict"):
            await kube.apply(CONFIGMAPS, stale | {"data": {"x": "2"}}, field_manager="two")
        assert await self._apply(kube, made, "one") == {}


class CollectorBehaviour:
    """Garbage collection by owner references."""

    async def _owned(self, kube: Kube, namespace: str, name: str, *owners: Manifest, held: bool = False) -> Manifest:
        manifest = configmap(namespace, name)
        manifest["metadata"]["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "blockOwnerDeletion": True,
            }
            for owner in owners
        ]
        if held:
            manifest["metadata"]["finalizers"] = ["trellis.dev/test"]
        return await kube.create(CONFIGMAPS, manifest)

    async def test_an_owned_object_is_deleted_with_its_last_owner(self, kube: Kube, namespace: str) -> None:
        first = await kube.create(CONFIGMAPS, configmap(namespace, "first"))
        second = await kube.create(CONFIGMAPS, configmap(namespace, "second"))
        await self._owned(kube, namespace, "of-one", first)
        await self._owned(kube, namespace, "of-both", first, second)
        await kube.delete(CONFIGMAPS, "first", namespace, uid=first["metadata"]["uid"])
        await eventually(lambda: is_deleted(kube, namespace, "of-one"), "of-one goes", CONTROLLERS)

        async def has_one_owner() -> bool:
            left = (await kube.get(CONFIGMAPS, "of-both", namespace))["metadata"]["ownerReferences"]
            return [owner["name"] for owner in left] == ["second"]

        await eventually(has_one_owner, "of-both stays, without the reference", CONTROLLERS)
        await kube.delete(CONFIGMAPS, "second", namespace, uid=second["metadata"]["uid"])
        await eventually(lambda: is_deleted(kube, namespace, "of-both"), "of-both goes", CONTROLLERS)

    async def test_objects_owned_by_a_node_are_deleted_with_the_node(self, kube: Kube, namespace: str) -> None:
        """As installer Jobs do: their owner has no namespace."""
        name = f"owner-{namespace}"
        node = await kube.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        await self._owned(kube, namespace, "a", node)
        await kube.delete(NODES, name, uid=node["metadata"]["uid"])
        await eventually(lambda: is_deleted(kube, namespace, "a"), "it goes", CONTROLLERS)

    async def test_an_object_with_a_deleted_owner_is_garbage_collected(self, kube: Kube, namespace: str) -> None:
        owner = await kube.create(CONFIGMAPS, configmap(namespace, "owner"))
        await kube.delete(CONFIGMAPS, "owner", namespace, uid=owner["metadata"]["uid"])
        await self._owned(kube, namespace, "ghost", owner)
        await eventually(lambda: is_deleted(kube, namespace, "ghost"), "it goes", CONTROLLERS)

    async def test_in_the_foreground_an_owner_waits_for_what_it_owns(self, kube: Kube, namespace: str) -> None:
        owner = await kube.create(CONFIGMAPS, configmap(namespace, "owner"))
        await self._owned(kube, namespace, "a", owner, held=True)
        uid = owner["metadata"]["uid"]
        await kube.delete(CONFIGMAPS, "owner", namespace, uid=uid, propagation="Foreground")
        await eventually(lambda: is_marked(kube, namespace, "a"), "what is owned is deleted", CONTROLLERS)
        waiting = (await kube.get(CONFIGMAPS, "owner", namespace))["metadata"]
        assert waiting["finalizers"] == ["foregroundDeletion"]
        assert waiting["deletionTimestamp"]
        release = {"metadata": {"finalizers": None}}
        await kube.merge_patch(CONFIGMAPS, "a", release, namespace, field_manager=MANAGER)
        await eventually(lambda: is_deleted(kube, namespace, "owner"), "the owner goes", CONTROLLERS)
        assert await is_deleted(kube, namespace, "a")

    async def test_orphans_stay_without_an_owner(self, kube: Kube, namespace: str) -> None:
        owner = await kube.create(CONFIGMAPS, configmap(namespace, "owner"))
        await self._owned(kube, namespace, "a", owner)
        await kube.delete(CONFIGMAPS, "owner", namespace, uid=owner["metadata"]["uid"], propagation="Orphan")
        await eventually(lambda: is_deleted(kube, namespace, "owner"), "the owner goes", CONTROLLERS)
        left = await kube.get(CONFIGMAPS, "a", namespace)
        assert not left["metadata"].get("ownerReferences")
        assert "deletionTimestamp" not in left["metadata"]
