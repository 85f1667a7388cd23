"""The behaviour of the Kubernetes client, written once and run against FakeKube and a real kube-apiserver.

A subclass provides the fixtures ``kube`` (a connection), ``namespace`` (one of its own, made already) and
``forget_history`` (makes version 1 too old to watch from).
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from support.cluster.kube_behaviour_discovery import DiscoveryBehaviour
from support.cluster.kube_behaviour_ownership import CollectorBehaviour, ManagerBehaviour
from support.cluster.kube_behaviour_preconditions import PreconditionBehaviour, RefusalBehaviour
from support.cluster.kube_behaviour_writes import ObjectBehaviour, PatchBehaviour
from support.cluster.kube_world import (
    DEADLINE,
    MANAGER,
    ForgetHistory,
    Seen,
    Watched,
    configmap,
    labelled,
    len_is,
    project,
    until,
)
from trellis.kube.client import Kube
from trellis.kube.errors import Gone, Invalid
from trellis.kube.informer import Change, ChangeKind
from trellis.kube.reader import Selection, WatchEvent
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import CONFIGMAPS, EVENTS, Manifest


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

    @pytest.mark.parametrize(
        ("selector", "names"),
        [
            ("app in (x,y)", "s1 s2"),
            ("app in (x, z),t", "s1"),
            ("app notin (x),t", "s3"),
            ("app notin (y)", "s1 s3"),
            ("!app,t", "s3"),
            ("app,t=1", "s1"),
            ("app=", ""),
        ],
    )
    async def test_labels_are_selected_by_sets(self, kube: Kube, namespace: str, selector: str, names: str) -> None:
        for name, labels in {"s1": {"app": "x", "t": "1"}, "s2": {"app": "y"}, "s3": {"t": "2"}}.items():
            await kube.create(CONFIGMAPS, labelled(configmap(namespace, name), **labels))
        found = await kube.list(CONFIGMAPS, namespace, label_selector=selector)
        chosen = [item["metadata"]["name"] for item in found.items]
        assert [name for name in chosen if name != "kube-root-ca.crt"] == names.split()

    @pytest.mark.parametrize("selector", ["app in (x", "a=b=c", "t,,u in x"])
    async def test_a_label_selector_that_makes_no_sense_is_invalid(
        self, kube: Kube, namespace: str, selector: str
    ) -> None:
        with pytest.raises(Invalid):
            await kube.list(CONFIGMAPS, namespace, label_selector=selector)

    async def test_a_field_selector_knows_name_and_namespace_alone(self, kube: Kube, namespace: str) -> None:
        await kube.create(CONFIGMAPS, configmap(namespace, "a"))
        found = await kube.list(
            CONFIGMAPS, field_selector=f"metadata.namespace={namespace},metadata.name!=kube-root-ca.crt"
        )
        assert [item["metadata"]["name"] for item in found.items] == ["a"]
        with pytest.raises(Invalid, match=r'"data\.x" is not a known field selector'):
            await kube.list(CONFIGMAPS, namespace, field_selector="data.x=1")

    async def test_all_pages_of_a_list_are_of_one_state(self, kube: Kube, namespace: str) -> None:
        made = {
            name: await kube.create(CONFIGMAPS, labelled(configmap(namespace, name), mine="")) for name in ("b", "c")
        }
        pages = kube.pages(Selection(CONFIGMAPS, namespace, "mine"), limit=1)
        first = await anext(pages)
        for name in ("a", "d"):
            await kube.create(CONFIGMAPS, labelled(configmap(namespace, name), mine=""))
        await kube.delete(CONFIGMAPS, "c", namespace, uid=made["c"]["metadata"]["uid"])
        rest = [page async for page in pages]
        assert [item["metadata"]["name"] for page in (first, *rest) for item in page.items] == ["b", "c"]
        assert {page.resource_version for page in rest} == {first.resource_version}
        # A server that selects while it reads may learn only by an empty page that there is no more.
        assert [page.first for page in (first, *rest)] == [True, *(False for _ in rest)]

    async def test_a_bookmark_carries_a_version_and_nothing_else_of_interest(self, kube: Kube, namespace: str) -> None:
        start = (await kube.list(CONFIGMAPS, namespace)).resource_version
        await kube.create(CONFIGMAPS, configmap(namespace, "a"))
        seen: list[WatchEvent] = []
        async with kube.watch(Selection(CONFIGMAPS, namespace), start, seconds=3, idle_seconds=DEADLINE) as events:
            seen = [event async for event in events]
        # A real namespace gets a ConfigMap of its own meanwhile.
        assert "a" in [event.object["metadata"]["name"] for event in seen if event.type == "ADDED"]
        for event in seen:
            assert int(event.object["metadata"]["resourceVersion"]) >= int(start), event.type

    async def test_a_watch_from_a_compacted_version_is_gone(
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

    async def test_the_informer_reports_each_change_once(self, kube: Kube, namespace: str) -> None:
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

    async def test_objects_of_a_megabyte_pass_watch_list_and_patch(self, kube: Kube, namespace: str) -> None:
        key, size = f"{namespace}/big", 1_000_000

        def is_whole(watched: Watched) -> bool:
            found = watched.informer.objects.get(key)
            return found is not None and len(dict(found.data)["x"]) == size

        async with Watched(kube, namespace) as watched:
            await kube.create(CONFIGMAPS, configmap(namespace, "big", x="y" * size))
            await until(lambda: is_whole(watched), "the big object")
        for number in range(3):
            await kube.create(CONFIGMAPS, configmap(namespace, f"big-{number}", x="z" * size))
        async with Watched(kube, namespace) as watched:
            assert is_whole(watched), "listed"
        patch = {"data": {"x": "w" * size}}
        patched = await kube.merge_patch(CONFIGMAPS, "big", patch, namespace, field_manager=MANAGER)
        assert len(patched["data"]["x"]) == size


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

    async def test_events_that_differ_in_their_words_only_become_one(self, kube: Kube, namespace: str) -> None:
        now = 1000.0
        made = await kube.create(CONFIGMAPS, configmap(namespace, "a"))
        recorder = EventRecorder(kube, component="trellis-x", clock=lambda: now)
        for number in range(100):
            await recorder.record(
                regarding=ObjectRef.of(made), type="Warning", reason="Failed", message=f"failure {number}"
            )
            now += 1
        events = (await kube.list(EVENTS, namespace)).items
        apart = [event for event in events if not event["message"].startswith("(combined")]
        (combined,) = [event for event in events if event not in apart]
        assert sorted(event["message"] for event in apart) == [f"failure {number}" for number in range(10)]
        assert (combined["count"], combined["message"]) == (2, "(combined from similar events): failure 70")
        await recorder.record(regarding=ObjectRef.of(made), type="Warning", reason="Other", message="news")
        assert [event["message"] for event in (await kube.list(EVENTS, namespace)).items if event["reason"] == "Other"]

    async def test_the_number_of_events_of_an_object_is_bounded(self, kube: Kube, namespace: str) -> None:
        now = 1000.0
        many, item = [await kube.create(CONFIGMAPS, configmap(namespace, name)) for name in "ab"]
        recorder = EventRecorder(kube, component="trellis-x", clock=lambda: now)

        async def record(made: Manifest, reason: str) -> None:
            await recorder.record(regarding=ObjectRef.of(made), type="Warning", reason=reason, message="m")

        for number in range(100):
            await record(many, f"Failed{number}")
        await record(item, "Failed")
        names = [event["involvedObject"]["name"] for event in (await kube.list(EVENTS, namespace)).items]
        assert (names.count("a"), names.count("b")) == (25, 1)
        now += 601
        for reason in ("Later1", "Later2", "Later3"):
            await record(many, reason)
        names = [event["involvedObject"]["name"] for event in (await kube.list(EVENTS, namespace)).items]
        assert names.count("a") == 27

    async def test_events_of_a_node_are_in_namespace_default(self, kube: Kube, namespace: str) -> None:
        uid = f"uid-{namespace}"
        await EventRecorder(kube, component="trellis-x").record(
            regarding=ObjectRef("v1", "Node", "node-1.example", uid),
            type="Warning",  # written before record() returns
            reason="Ready",
            message="Wasm",
        )
        events = (await kube.list(EVENTS, "default")).items  # others' objects may have no uid
        found = [event for event in events if event["involvedObject"].get("uid") == uid]
        assert [event["source"]["component"] for event in found] == ["trellis-x"]

    async def test_an_event_that_cannot_be_recorded_is_only_logged(self, kube: Kube) -> None:
        await EventRecorder(kube, component="trellis-x").record(
            regarding=ObjectRef("v1", "Pod", "p", "u", "no-such-namespace"),
            type="Warning",
            reason="R",
            message="m",
        )


class KubeBehaviour(
    ObjectBehaviour,
    PatchBehaviour,
    PreconditionBehaviour,
    RefusalBehaviour,
    ManagerBehaviour,
    CollectorBehaviour,
    DiscoveryBehaviour,
    ListBehaviour,
    EventBehaviour,
):
    """The whole suite."""
