"""Objects and patches of the Kubernetes client: part of the suite in kube_behaviour."""

from __future__ import annotations

import pytest

from support.cluster.kube_world import MANAGER, configmap, reference
from trellis.kube.client import Kube
from trellis.kube.errors import (
    AlreadyExists,
    AnswerTooLarge,
    Call,
    Conflict,
    Invalid,
    NotFound,
    NotLeading,
    PatchTestFailed,
)
from trellis.kube.resources import CONFIGMAPS, NAMESPACES, NODES, Resource
from trellis.kube.transport import HttpRequest


class ObjectBehaviour:
    """Objects: read, write, preconditions."""

    async def test_a_created_object_is_read_back_with_uid_and_version(self, kube: Kube, namespace: str) -> None:
        created = await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        found = await kube.get(CONFIGMAPS, "a", namespace)
        assert found["data"] == {"x": "1"}
        assert found["metadata"]["uid"] == created["metadata"]["uid"] != ""
        assert found["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
        assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMap")

    async def test_a_missing_object_is_not_found_and_the_message_names_it(self, kube: Kube, namespace: str) -> None:
        with pytest.raises(NotFound) as caught:
            await kube.get(CONFIGMAPS, "nobody", namespace)
        assert str(caught.value) == (
            f'cannot GET ConfigMap {namespace}/nobody: 404 NotFound: configmaps "nobody" not found'
        )
        assert (caught.value.status, caught.value.kind, caught.value.name) == (404, "ConfigMap", "nobody")

    async def test_an_answer_is_taken_up_to_the_length_that_is_requested(self, kube: Kube, namespace: str) -> None:
        await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1" * 5000))
        call = Call("GET", "ConfigMap", "configmaps", namespace, "a")
        path = CONFIGMAPS.path(namespace, "a")
        body = await kube.ask(call, HttpRequest("GET", path))
        assert body == await kube.ask(call, HttpRequest("GET", path, most=len(body)))
        with pytest.raises(AnswerTooLarge, match="more than 5000 bytes"):
            await kube.ask(call, HttpRequest("GET", path, most=5000))
        with pytest.raises(NotFound):
            await kube.ask(call, HttpRequest("GET", CONFIGMAPS.path(namespace, "nobody"), most=1))
        assert (await kube.get(CONFIGMAPS, "a", namespace))["data"] == {"x": "1" * 5000}

    async def test_creating_a_name_twice_is_already_exists(self, kube: Kube, namespace: str) -> None:
        await kube.create(CONFIGMAPS, configmap(namespace, "a"))
        with pytest.raises(AlreadyExists):
            await kube.create(CONFIGMAPS, configmap(namespace, "a"))

    async def test_creating_in_a_missing_namespace_is_not_found(self, kube: Kube) -> None:
        with pytest.raises(NotFound, match=r'namespaces "nowhere" not found'):
            await kube.create(CONFIGMAPS, configmap("nowhere", "a"))

    async def test_an_unknown_kind_is_not_found(self, kube: Kube) -> None:
        unknown = Resource("trellis.dev", "v9", "nothings", "Nothing", namespaced=False)
        with pytest.raises(NotFound):
            await kube.list(unknown)

    async def test_replace_compares_the_version_that_was_read(self, kube: Kube, namespace: str) -> None:
        first = await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        second = await kube.replace(CONFIGMAPS, first | {"data": {"x": "2"}})
        assert second["data"] == {"x": "2"}
        with pytest.raises(Conflict):
            await kube.replace(CONFIGMAPS, first | {"data": {"x": "3"}})

    async def test_replace_without_a_version_is_refused_here(self, kube: Kube, namespace: str) -> None:
        with pytest.raises(ValueError, match="resourceVersion"):
            await kube.replace(CONFIGMAPS, configmap(namespace, "a"))

    async def test_a_write_that_changes_nothing_keeps_the_version(self, kube: Kube, namespace: str) -> None:
        first = await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        again = await kube.replace(CONFIGMAPS, first)
        assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]

    async def test_delete_takes_only_the_object_that_was_read(self, kube: Kube, namespace: str) -> None:
        first = await kube.create(CONFIGMAPS, configmap(namespace, "a"))
        with pytest.raises(Conflict):
            await kube.delete(CONFIGMAPS, "a", namespace, uid="another")
        await kube.delete(CONFIGMAPS, "a", namespace, uid=first["metadata"]["uid"])
        with pytest.raises(NotFound):
            await kube.delete(CONFIGMAPS, "a", namespace, uid=first["metadata"]["uid"])

    async def test_delete_compares_the_version_if_asked(self, kube: Kube, namespace: str) -> None:
        first = (await kube.create(CONFIGMAPS, configmap(namespace, "a")))["metadata"]
        patch = [{"op": "add", "path": "/data", "value": {"x": "1"}}]
        await kube.json_patch(CONFIGMAPS, "a", patch, namespace, field_manager=MANAGER)
        with pytest.raises(Conflict):
            await kube.delete(CONFIGMAPS, "a", namespace, uid=first["uid"], resource_version=first["resourceVersion"])

    async def test_finalizers_keep_an_object_until_they_are_removed(self, kube: Kube, namespace: str) -> None:
        manifest = configmap(namespace, "a")
        manifest["metadata"]["finalizers"] = ["trellis.dev/test"]
        uid = (await kube.create(CONFIGMAPS, manifest))["metadata"]["uid"]
        await kube.delete(CONFIGMAPS, "a", namespace, uid=uid)
        assert (await kube.get(CONFIGMAPS, "a", namespace))["metadata"]["deletionTimestamp"]
        release = {"metadata": {"finalizers": None}}
        await kube.merge_patch(CONFIGMAPS, "a", release, namespace, field_manager=MANAGER)
        with pytest.raises(NotFound):
            await kube.get(CONFIGMAPS, "a", namespace)

    async def test_ensure_namespace_makes_it_once_and_leaves_it_alone(self, kube: Kube, namespace: str) -> None:
        name = f"{namespace}-made"
        await kube.ensure_namespace(name, {"a": "1"})
        await kube.ensure_namespace(name, {"a": "2"})
        made = (await kube.get(NAMESPACES, name))["metadata"]
        assert made["labels"]["a"] == "1"
        await kube.delete(NAMESPACES, name, uid=made["uid"])

    async def test_the_guard_stops_writes_and_lets_reads_pass(self, kube: Kube, namespace: str) -> None:
        def refuse() -> None:
            raise NotLeading

        guarded = kube.guarded(refuse)
        with pytest.raises(NotLeading):
            await guarded.create(CONFIGMAPS, configmap(namespace, "a"))
        with pytest.raises(NotFound):
            await guarded.get(CONFIGMAPS, "a", namespace)
        await kube.create(CONFIGMAPS, configmap(namespace, "a"))

    async def test_the_server_answers_a_probe(self, kube: Kube) -> None:
        await kube.probe()
        await kube.wait_available()
        assert not [reason for reason in kube.health.readiness().reasons if "kubernetes" in reason]


class PatchBehaviour:
    """JSON patches, merge patches and server-side apply."""

    async def test_json_patch_carries_out_all_operations(self, kube: Kube, namespace: str) -> None:
        uid = (await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1", y="2")))["metadata"]["uid"]
        ops = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/metadata/labels", "value": {"kwasm.sh/kwasm-provisioned": "a"}},
            {"op": "replace", "path": "/data/x", "value": "3"},
            {"op": "remove", "path": "/data/y"},
            {"op": "add", "path": "/metadata/labels/trellis.dev~1wasm", "value": "ready"},
        ]
        patched = await kube.json_patch(CONFIGMAPS, "a", ops, namespace, field_manager=MANAGER)
        assert patched["data"] == {"x": "3"}
        assert patched["metadata"]["labels"] == {"kwasm.sh/kwasm-provisioned": "a", "trellis.dev/wasm": "ready"}

    @pytest.mark.parametrize("path", ["/metadata/uid", "/metadata/labels/absent", "/data/none/deeper"])
    async def test_a_failed_test_is_distinguished_and_nothing_is_written(
        self, kube: Kube, namespace: str, path: str
    ) -> None:
        await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        ops = [
            {"op": "replace", "path": "/data/x", "value": "2"},
            {"op": "test", "path": path, "value": "another"},
        ]
        with pytest.raises(PatchTestFailed) as caught:
            await kube.json_patch(CONFIGMAPS, "a", ops, namespace, field_manager=MANAGER)
        assert f"ConfigMap {namespace}/a" in str(caught.value)
        assert (await kube.get(CONFIGMAPS, "a", namespace))["data"] == {"x": "1"}

    async def test_an_impossible_operation_without_a_test_is_invalid(self, kube: Kube, namespace: str) -> None:
        await kube.create(CONFIGMAPS, configmap(namespace, "a"))
        ops = [{"op": "remove", "path": "/data/absent"}]
        with pytest.raises(Invalid):
            await kube.json_patch(CONFIGMAPS, "a", ops, namespace, field_manager=MANAGER)

    async def test_lists_are_patched_by_index(self, kube: Kube) -> None:
        name = f"taints-{id(self)}"
        taint = {"key": "trellis.dev/startup", "effect": "NoSchedule"}
        node = await kube.create(NODES, {"metadata": {"name": name}, "apiVersion": "v1", "kind": "Node", "spec": {}})
        try:
            ops = [{"op": "add", "path": "/spec/taints", "value": [taint]}]
            await kube.json_patch(NODES, name, ops, field_manager=MANAGER)
            ops = [
                {"op": "test", "path": "/spec/taints/0/key", "value": "trellis.dev/startup"},
                {"op": "remove", "path": "/spec/taints/0"},
            ]
            patched = await kube.json_patch(NODES, name, ops, field_manager=MANAGER)
            assert not patched["spec"].get("taints")
        finally:
            await kube.delete(NODES, name, uid=node["metadata"]["uid"])

    async def test_merge_patch_removes_by_null_and_keeps_the_rest(self, kube: Kube, namespace: str) -> None:
        await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1", y="2"))
        patch = {"data": {"x": None, "z": "3"}}
        patched = await kube.merge_patch(CONFIGMAPS, "a", patch, namespace, field_manager=MANAGER)
        assert patched["data"] == {"y": "2", "z": "3"}

    async def test_a_merge_patch_with_the_uid_never_changes_a_successor(self, kube: Kube, namespace: str) -> None:
        await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        patch = {"metadata": {"uid": "another"}, "data": {"x": "2"}}
        with pytest.raises(Conflict):
            await kube.merge_patch(CONFIGMAPS, "a", patch, namespace, field_manager=MANAGER)

    async def test_apply_makes_an_object_only_when_asked(self, kube: Kube, namespace: str) -> None:
        manifest = configmap(namespace, "a", x="1")
        with pytest.raises(ValueError, match=r"metadata\.uid"):
            await kube.apply(CONFIGMAPS, manifest, field_manager=MANAGER)
        made = await kube.apply(CONFIGMAPS, manifest, field_manager=MANAGER, create_if_missing=True)
        assert made["data"] == {"x": "1"}

    async def test_apply_owns_its_fields_and_no_others(self, kube: Kube, namespace: str) -> None:
        made = await kube.create(CONFIGMAPS, configmap(namespace, "a", theirs="1"))
        target = reference(made)
        await kube.apply(CONFIGMAPS, target | {"data": {"ours": "1", "once": "1"}}, field_manager=MANAGER)
        after = await kube.apply(CONFIGMAPS, target | {"data": {"ours": "2"}}, field_manager=MANAGER)
        assert after["data"] == {"theirs": "1", "ours": "2"}

    async def test_apply_never_makes_a_ghost_of_a_deleted_object(self, kube: Kube, namespace: str) -> None:
        made = await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        await kube.delete(CONFIGMAPS, "a", namespace, uid=made["metadata"]["uid"])
        with pytest.raises(Conflict):
            await kube.apply(CONFIGMAPS, reference(made) | {"data": {"x": "2"}}, field_manager=MANAGER)
        with pytest.raises(NotFound):
            await kube.get(CONFIGMAPS, "a", namespace)

    async def test_apply_never_changes_a_successor_of_the_same_name(self, kube: Kube, namespace: str) -> None:
        made = await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        await kube.delete(CONFIGMAPS, "a", namespace, uid=made["metadata"]["uid"])
        await kube.create(CONFIGMAPS, configmap(namespace, "a", x="new"))
        with pytest.raises(Conflict):
            await kube.apply(CONFIGMAPS, reference(made) | {"data": {"x": "2"}}, field_manager=MANAGER)
