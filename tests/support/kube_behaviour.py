"""What the Kubernetes client does, written once and run against FakeKube and a real kube-apiserver.

A subclass provides the fixtures ``kube`` (a connection), ``namespace`` (one of its own, made already) and
``forget_history`` (makes version 1 too old to watch from).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import pytest

from trellis.kube.client import Kube
from trellis.kube.errors import (
    AlreadyExists,
    Conflict,
    Gone,
    Invalid,
    NotFound,
    NotLeading,
    PatchTestFailed,
)
from trellis.kube.informer import Change, ChangeKind, Informer
from trellis.kube.reader import Selection
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import CONFIGMAPS, EVENTS, NAMESPACES, NODES, Manifest, Resource

DEADLINE = 15.0
MANAGER = "trellis.dev/test"
ForgetHistory = Callable[[], Awaitable[None]]


def configmap(namespace: str, name: str, **data: str) -> Manifest:
    metadata: Manifest = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def labelled(manifest: Manifest, **labels: str) -> Manifest:
    return manifest | {"metadata": manifest["metadata"] | {"labels": labels}}


def reference(manifest: Manifest) -> Manifest:
    """What an apply needs to change this very object."""
    metadata = manifest["metadata"]
    names = ("name", "namespace", "uid")
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "metadata": {name: metadata[name] for name in names if name in metadata},
    }


async def until(condition: Callable[[], bool], what: str, deadline: float = DEADLINE) -> None:
    """Wait until the condition holds; fail with ``what`` if it does not in time."""
    try:
        async with asyncio.timeout(deadline):
            while not condition():  # noqa: ASYNC110 - the condition is on objects that have no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"not within {deadline} s: {what}")


def len_is(things: Sequence[object], wanted: int) -> bool:
    return len(things) == wanted


@dataclass(frozen=True)
class Seen:
    uid: str
    data: tuple[tuple[str, str], ...]


def project(manifest: Manifest) -> Seen:
    return Seen(manifest["metadata"]["uid"], tuple(sorted((manifest.get("data") or {}).items())))


class Watched:
    """A running informer on the ConfigMaps of a namespace that a test made, and all its changes."""

    def __init__(self, kube: Kube, namespace: str, **options: Any) -> None:
        self.changes: list[Change[Seen]] = []
        self.informer = Informer(
            kube,
            options.pop("resource", CONFIGMAPS),
            project=options.pop("project", project),
            on_change=options.pop("on_change", self.changes.append),
            namespace=namespace,
            **options,
        )

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.informer.run())
        async with asyncio.timeout(DEADLINE):
            await self.informer.synced.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def kinds_of(self, key: str) -> list[ChangeKind]:
        return [change.kind for change in self.changes if change.key == key]

    def of_tests(self) -> set[str]:
        """Keys known now, without the ConfigMap a controller puts into each namespace."""
        return {key for key in self.informer.objects if not key.endswith("/kube-root-ca.crt")}


class ObjectBehaviour:
    """Objects: read, write, preconditions."""

    async def test_what_is_created_is_read_back_with_uid_and_version(self, kube: Kube, namespace: str) -> None:
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

    async def test_finalizers_hold_an_object_until_they_are_gone(self, kube: Kube, namespace: str) -> None:
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
        assert (await kube.get(NAMESPACES, name))["metadata"]["labels"]["a"] == "1"

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
    async def test_a_failed_test_is_told_apart_and_nothing_is_written(
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


class ListBehaviour:
    """Lists, watches and the informer."""

    async def test_lists_page_through_and_select_by_label(self, kube: Kube, namespace: str) -> None:
        for number in range(7):
            parity = "even" if number % 2 == 0 else "odd"
            await kube.create(CONFIGMAPS, labelled(configmap(namespace, f"c{number}"), parity=parity))
        found = await kube.list(CONFIGMAPS, namespace, limit=3, label_selector="parity")
        assert [item["metadata"]["name"] for item in found.items] == [f"c{number}" for number in range(7)]
        assert int(found.resource_version) > 0
        for selector in ("parity=odd", "parity!=even,parity", "parity==odd"):
            odd = await kube.list(CONFIGMAPS, namespace, label_selector=selector)
            assert [item["metadata"]["name"] for item in odd.items] == ["c1", "c3", "c5"], selector
        named = await kube.list(CONFIGMAPS, namespace, field_selector="metadata.name=c2")
        assert len(named.items) == 1

    async def test_a_watch_from_an_ancient_version_is_gone(
        self, kube: Kube, namespace: str, forget_history: ForgetHistory
    ) -> None:
        await forget_history()
        with pytest.raises(Gone):
            await self.watched_types(kube, namespace, "1")

    async def watched_types(self, kube: Kube, namespace: str, version: str) -> set[str]:
        async with kube.watch(Selection(CONFIGMAPS, namespace), version, seconds=1, idle_seconds=10) as events:
            return {event.type async for event in events}

    async def test_a_watch_ends_by_itself(self, kube: Kube, namespace: str) -> None:
        version = (await kube.list(CONFIGMAPS, namespace)).resource_version
        async with asyncio.timeout(DEADLINE):
            assert await self.watched_types(kube, namespace, version) <= {"BOOKMARK", "ADDED"}

    async def test_the_informer_tells_each_difference_once(self, kube: Kube, namespace: str) -> None:
        await kube.create(CONFIGMAPS, configmap(namespace, "before", x="1"))
        async with Watched(kube, namespace) as watched:
            key = f"{namespace}/before"
            assert watched.kinds_of(key) == [ChangeKind.ADDED]
            await kube.merge_patch(CONFIGMAPS, "before", {"data": {"x": "2"}}, namespace, field_manager=MANAGER)
            await until(lambda: len(watched.kinds_of(key)) == 2, "MODIFIED")
            modified = next(change for change in watched.changes if change.kind is ChangeKind.MODIFIED)
            assert modified.old is not None
            assert modified.new is not None
            assert (modified.old.data, modified.new.data) == ((("x", "1"),), (("x", "2"),))
            await kube.delete(CONFIGMAPS, "before", namespace, uid=modified.new.uid)
            await until(lambda: key not in watched.informer.objects, "DELETED")
            assert watched.kinds_of(key) == [ChangeKind.ADDED, ChangeKind.MODIFIED, ChangeKind.DELETED]
            assert watched.changes[-1].new is None
            assert watched.informer.staleness() < DEADLINE

    async def test_the_projection_filters_noise(self, kube: Kube, namespace: str) -> None:
        await kube.create(CONFIGMAPS, configmap(namespace, "a", x="1"))
        async with Watched(kube, namespace) as watched:
            patch = {"metadata": {"annotations": {"noise": "1"}}}
            await kube.merge_patch(CONFIGMAPS, "a", patch, namespace, field_manager=MANAGER)
            await kube.create(CONFIGMAPS, configmap(namespace, "b"))
            await until(lambda: f"{namespace}/b" in watched.informer.objects, "b is seen")
            assert watched.kinds_of(f"{namespace}/a") == [ChangeKind.ADDED]

    async def test_leaving_and_entering_a_selection_is_deleted_and_added(self, kube: Kube, namespace: str) -> None:
        await kube.create(CONFIGMAPS, labelled(configmap(namespace, "a"), app="x"))
        async with Watched(kube, namespace, label_selector="app=x") as watched:
            for value in ("y", "x"):
                known = len(watched.changes)
                patch = {"metadata": {"labels": {"app": value}}}
                await kube.merge_patch(CONFIGMAPS, "a", patch, namespace, field_manager=MANAGER)
                await until(partial(len_is, watched.changes, known + 1), f"label {value}")
            assert watched.kinds_of(f"{namespace}/a") == [ChangeKind.ADDED, ChangeKind.DELETED, ChangeKind.ADDED]

    async def test_faults_in_callbacks_do_not_end_the_watch(self, kube: Kube, namespace: str) -> None:
        seen: list[str] = []

        def fragile_project(manifest: Manifest) -> Seen:
            if manifest["metadata"]["name"] == "unprojectable":
                raise KeyError("spec")
            return project(manifest)

        def fragile_change(change: Change[Seen]) -> None:
            seen.append(change.key)
            if change.key.endswith("/untakeable"):
                raise RuntimeError("handler fault")

        async with Watched(kube, namespace, project=fragile_project, on_change=fragile_change) as watched:
            for name in ("unprojectable", "untakeable", "fine"):
                await kube.create(CONFIGMAPS, configmap(namespace, name))
            await until(lambda: f"{namespace}/fine" in seen, "the change after the faults")
            assert watched.of_tests() == {f"{namespace}/untakeable", f"{namespace}/fine"}

    async def test_an_object_of_a_megabyte_passes_the_watch(self, kube: Kube, namespace: str) -> None:
        async with Watched(kube, namespace) as watched:
            await kube.create(CONFIGMAPS, configmap(namespace, "big", x="y" * 1_000_000))
            await until(lambda: f"{namespace}/big" in watched.informer.objects, "the big object")
            assert len(watched.informer.objects[f"{namespace}/big"].data[0][1]) == 1_000_000


class EventBehaviour:
    """Events for people."""

    async def test_an_event_is_written_once_and_counted_when_it_repeats(self, kube: Kube, namespace: str) -> None:
        now = 1000.0
        made = await kube.create(CONFIGMAPS, configmap(namespace, "a"))
        recorder = EventRecorder(kube, component="trellis-x", clock=lambda: now)

        async def record() -> list[Manifest]:
            await recorder.record(
                regarding=ObjectRef.of(made),
                type="Warning",
                reason="HandlerMissing",
                message="m",
            )
            return (await kube.list(EVENTS, namespace)).items

        (event,) = await record()
        assert (event["count"], event["type"], event["reason"], event["message"]) == (
            1,
            "Warning",
            "HandlerMissing",
            "m",
        )
        assert event["involvedObject"]["uid"] == made["metadata"]["uid"]
        (event,) = await record()
        assert event["count"] == 1, "a repeat within a minute is not written"
        now += 61
        (event,) = await record()
        assert event["count"] == 2

    async def test_events_of_a_node_are_in_namespace_default(self, kube: Kube, namespace: str) -> None:
        uid = f"uid-{namespace}"
        await EventRecorder(kube, component="trellis-x").record(
            regarding=ObjectRef("v1", "Node", "node-1.example", uid),
            type="Normal",
            reason="Ready",
            message="Wasm",
        )
        found = [event for event in (await kube.list(EVENTS, "default")).items if event["involvedObject"]["uid"] == uid]
        assert [event["source"]["component"] for event in found] == ["trellis-x"]

    async def test_what_cannot_be_recorded_is_only_logged(self, kube: Kube) -> None:
        await EventRecorder(kube, component="trellis-x").record(
            regarding=ObjectRef("v1", "Pod", "p", "u", "no-such-namespace"),
            type="Normal",
            reason="R",
            message="m",
        )


class KubeBehaviour(ObjectBehaviour, PatchBehaviour, ListBehaviour, EventBehaviour):
    """The whole suite."""


__all__ = ["DEADLINE", "MANAGER", "KubeBehaviour", "Seen", "Watched", "configmap", "project", "until"]
