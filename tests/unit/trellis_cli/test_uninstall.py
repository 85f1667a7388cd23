"""Finalizers that `trellis uninstall` removes: of which objects, in which order, and when a service counts as alive."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from support.chart.rendered import hooks
from support.cluster.not_served import define, refuse
from support.suite.naming import lacking
from trellis import names
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.lease import LeaseRecord, new_lease, with_holder
from trellis.kube.resources import (
    ALL,
    API_SERVICES,
    APPLICATIONS,
    DEFINITIONS,
    ENDPOINT_SLICES,
    HOST_CONFIGS,
    LEASES,
    SERVICES,
    SHIMS,
)
from trellis.lattice.domain.preserved import write_preserved
from trellis.lattice.domain.service_views import view_service
from trellis.read_model.reading.served import NotServedError
from trellis_cli.common.errors import CommandError
from trellis_cli.common.messages import EXIT_FAILED
from trellis_cli.common.output import Format
from trellis_cli.common.settings import ClientSettings
from trellis_cli.uninstall import command as uninstall
from trellis_cli.uninstall.model import GUARDS, SLICES, Leases, LeftReason, Row, chosen, replicas_of, still_run
from trellis_dev.fakes.fake import FakeKube, status_reply

Manifest = dict[str, Any]
SLICE = "shop-1a2b3c4d5e-0"
MARKED = {names.ANNOTATION_APPLICATION: "shop"}


def made(finalizers: list[str], annotations: dict[str, str] | None = None, **metadata: object) -> Manifest:
    return {
        "metadata": {
            "name": "x", "namespace": "shop", "uid": "1", "finalizers": finalizers, "annotations": annotations or {},
            **metadata,
        }
    }  # fmt: skip


def guard_of(kind: str) -> Any:
    return next(guard for guard in GUARDS if guard.res.kind == kind)


def test_every_finalizer_of_trellis_is_removed() -> None:
    ours = {value for name, value in vars(names).items() if name.startswith("FINALIZER")}
    assert {guard.finalizer for guard in GUARDS} == ours | {names.WASMCLOUD_OPERATOR_SERVICE}


def test_only_the_finalizer_of_trellis_is_removed_with_a_precondition() -> None:
    ops = guard_of("Shim").removal(made(["other/one", names.FINALIZER]))
    assert [op["op"] for op in ops] == ["test", "test", "replace"]
    assert ops[1]["value"] == ["other/one", names.FINALIZER]
    assert ops[2]["value"] == ["other/one"]


def test_a_service_of_wasmcloud_operator_is_not_managed_by_trellis() -> None:
    guard = guard_of("Service")
    assert not guard.holds(made([names.WASMCLOUD_OPERATOR_SERVICE]))
    assert guard.holds(made([names.WASMCLOUD_OPERATOR_SERVICE], MARKED))
    assert not guard.holds(made([], MARKED))


def test_a_confined_host_manager_guards_groups_where_it_looks() -> None:
    assert [(guard.res, place) for guard, place in chosen(["shop", "lab", "shop"])] == [
        (HOST_CONFIGS, "shop"),
        (HOST_CONFIGS, "lab"),
    ]
    assert [guard.res for guard, place in chosen([]) if place is None] == [
        ENDPOINT_SLICES,
        SERVICES,
        APPLICATIONS,
        HOST_CONFIGS,
        SHIMS,
    ]


def test_objects_in_deletion_are_listed_by_name() -> None:
    row = Row(guard_of("Application"), there=2)
    row.took(made([], deletionTimestamp="2026-01-01T00:00:00Z"))
    row.took(made([]) | {"metadata": {"name": "y", "namespace": "shop"}})
    assert (row.removed, row.unfinished) == (["shop/x", "shop/y"], ["shop/x"])
    assert lacking(row.note, "wadm", "wash", "shop/x") == []
    assert "shop/y" not in row.note


def test_a_lease_is_dead_once_it_did_not_change_for_its_own_duration() -> None:
    leases = Leases()
    held = LeaseRecord("pod-1", "noon", 0, 10.0)
    assert leases.leader("provisioner", held, 100.0) == "pod-1"
    assert leases.leader("provisioner", held, 110.0) == "pod-1"
    assert leases.leader("provisioner", held, 110.1) == ""
    renewed = LeaseRecord("pod-1", "later", 0, 10.0)
    assert leases.leader("provisioner", renewed, 111.0) == "pod-1"
    assert leases.leader("provisioner", LeaseRecord("", "later", 0, 1.0), 112.0) == ""
    assert leases.leader("provisioner", None, 112.0) == ""


def test_terminating_and_ended_pods_do_not_block() -> None:
    pods = [
        {"metadata": {"name": "runs"}, "status": {"phase": "Running"}},
        {"metadata": {"name": "begins"}},
        {"metadata": {"name": "ends", "deletionTimestamp": "x"}, "status": {"phase": "Running"}},
        {"metadata": {"name": "ended"}, "status": {"phase": "Succeeded"}},
    ]
    assert still_run(pods) == ["begins", "runs"]
    assert [replicas_of(item) for item in ({}, {"spec": {}}, {"spec": {"replicas": 0}})] == [1, 1, 0]


def test_the_chart_lets_the_job_read_the_crd_of_each_kind_that_it_lists() -> None:
    [role] = [hook for hook in hooks("pre-delete") if hook["kind"] == "ClusterRole"]
    named = {rule["resources"][0]: set(rule["resourceNames"]) for rule in role["rules"] if "resourceNames" in rule}
    ours = [guard.res for guard in GUARDS if "." in guard.res.group]
    assert named == {
        DEFINITIONS.plural: {f"{res.plural}.{res.group}" for res in ours},
        API_SERVICES.plural: {f"{res.version}.{res.group}" for res in ours},
    }


def claimed_by(kube: FakeKube, installation: str, duration: int = 30) -> None:
    """Have an installation renew its claim on the nodes."""
    lease = new_lease(names.LEASE_NODES, names.CLAIM_NAMESPACE)
    kube.put(LEASES, with_holder(lease, identity=installation, duration=duration, now=datetime.now(UTC)))


async def task_done(kube: FakeKube, monkeypatch: pytest.MonkeyPatch, *, dry_run: bool = False) -> dict[str, Row]:
    """Run the whole command over this API server; return what became of each kind."""

    @contextlib.asynccontextmanager
    async def connected(_: object) -> AsyncIterator[FakeKube]:
        yield kube

    monkeypatch.setattr(uninstall, "connected", connected)
    task = uninstall.Task("mine", names.CLAIM_NAMESPACE, chosen([]), time.monotonic() + 10, poll=0.01)
    _, rows = await uninstall._run(ClientSettings(), task, dry_run=dry_run)
    return {row.guard.res.kind: row for row in rows}


@pytest.mark.parametrize("dry_run", [False, True])
async def test_shims_of_the_installation_that_provisions_the_nodes_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, *, dry_run: bool
) -> None:
    kube = FakeKube()
    kube.put(SHIMS, {"metadata": {"name": "spin", "finalizers": [names.FINALIZER]}})
    kube.put(HOST_CONFIGS, made([names.FINALIZER_HOSTS], namespace="default"))

    async def renew() -> None:
        while True:
            claimed_by(kube, "other")
            await asyncio.sleep(0.1)

    claimed_by(kube, "other")
    renewing = asyncio.create_task(renew())
    rows = await task_done(kube, monkeypatch, dry_run=dry_run)
    renewing.cancel()
    assert (rows["Shim"].there, rows["Shim"].removed, rows["Shim"].left_to) == (1, [], "other")
    assert "installation other" in rows["Shim"].note
    assert kube.objects(SHIMS)[0]["metadata"]["finalizers"] == [names.FINALIZER]
    assert rows["WasmCloudHostConfig"].removed == ["default/x"]


@pytest.mark.parametrize("holder", ["mine", "other", ""], ids=["its own", "one that is gone", "nobody"])
async def test_a_claim_that_no_other_installation_renews_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, holder: str
) -> None:
    kube = FakeKube()
    kube.put(SHIMS, {"metadata": {"name": "spin", "finalizers": [names.FINALIZER]}})
    if holder:
        claimed_by(kube, holder, duration=1)
    rows = await task_done(kube, monkeypatch)
    assert (rows["Shim"].removed, rows["Shim"].left_to) == (["spin"], "")


async def free(kube: FakeKube, guard: Any, seconds: float = 5.0) -> Row:
    row = Row(guard)
    task = uninstall.Task("mine", names.CLAIM_NAMESPACE, chosen([]), time.monotonic() + seconds, poll=0.01)
    await uninstall._until(task, lambda: uninstall._free(kube, guard, None, row))
    return row


async def test_each_finalizer_is_removed_once_and_a_second_run_writes_nothing() -> None:
    kube = FakeKube()
    for name in ("a", "b"):
        kube.put(SHIMS, {"metadata": {"name": name, "finalizers": [names.FINALIZER, "other/one"]}})
    row = await free(kube, guard_of("Shim"))
    assert (row.there, sorted(row.removed)) == (2, ["a", "b"])
    assert [item["metadata"]["finalizers"] for item in kube.objects(SHIMS)] == [["other/one"], ["other/one"]]
    writes = len(kube.writes)
    again = await free(kube, guard_of("Shim"))
    assert (again.there, again.removed, len(kube.writes)) == (2, [], writes)


def service_of(kube: FakeKube, **annotations: str) -> Manifest:
    """Have Service shop, of Trellis unless ``annotations`` are given."""
    marks = {names.ANNOTATION_APPLICATION: "shop", names.ANNOTATION_LATTICE: "east/1"}
    metadata = {"name": "shop", "namespace": "default", "annotations": annotations or marks}
    return kube.put(SERVICES, {"metadata": metadata, "spec": {}})


def preserving_slice_of(kube: FakeKube, text: str, name: str = SLICE, label: str = "shop") -> Manifest:
    """Have a slice with this text as its preserved addresses."""
    labels = {names.LABEL_SLICE_MANAGED_BY: names.SLICE_MANAGED_BY}
    labels |= {names.LABEL_SERVICE_NAME: label} if label else {}
    annotations = {names.ANNOTATION_PRESERVED: text} if text else {}
    metadata = {"name": name, "namespace": "default", "labels": labels, "annotations": annotations}
    return kube.put(ENDPOINT_SLICES, {"metadata": metadata, "addressType": "IPv4", "endpoints": [], "ports": []})


def preserved_of(service: Manifest, uid: str = "") -> str:
    return write_preserved("shop", "east/1", replace(view_service(service), **({"uid": uid} if uid else {})))


def owners(kube: FakeKube) -> dict[str, list[tuple[str, str]]]:
    """Return name and uid of the owners of each slice."""
    return {
        item["metadata"]["name"]: [(of["name"], of["uid"]) for of in item["metadata"].get("ownerReferences") or ()]
        for item in kube.objects(ENDPOINT_SLICES)
    }


def refuse_services(kube: FakeKube, times: int, code: int, reason: str) -> None:
    """Have the API server answer reads of Services with an error."""
    kube.answer_next(
        times,
        lambda _: status_reply(code, reason, "no"),
        when=lambda request: request.method == "GET" and request.path.endswith("/services"),
    )


async def test_slices_that_outlive_their_service_go_with_it_from_then_on() -> None:
    kube = FakeKube()
    service = service_of(kube)
    for name, text in {"kept": preserved_of(service), "owned": ""}.items():
        preserving_slice_of(kube, text, name)
    row = await free(kube, SLICES)
    assert (row.there, row.removed, row.unreadable, row.left) == (2, ["default/kept"], [], {})
    assert owners(kube) == {"kept": [("shop", service["metadata"]["uid"])], "owned": []}
    assert not any(item["metadata"].get("annotations") for item in kube.objects(ENDPOINT_SLICES))
    writes = len(kube.writes)
    assert ((await free(kube, SLICES)).removed, len(kube.writes)) == ([], writes)


async def test_a_slice_goes_with_the_service_that_there_is_now_and_not_with_the_one_it_was_written_for() -> None:
    kube = FakeKube()
    service = service_of(kube)
    preserving_slice_of(kube, preserved_of(service, "uid-of-the-former-one"))
    await free(kube, SLICES)
    assert owners(kube) == {SLICE: [("shop", service["metadata"]["uid"])]}


@pytest.mark.parametrize("anothers", [False, True], ids=["no Service", "a Service of another"])
async def test_a_slice_of_a_deleted_service_is_deleted_with_it(*, anothers: bool) -> None:
    kube = FakeKube()
    if anothers:
        service_of(kube, team="blue")
    former = {"metadata": {"name": "shop", "namespace": "default", "uid": "former", "resourceVersion": "1"}}
    preserving_slice_of(kube, preserved_of(former))
    row = await free(kube, SLICES)
    assert row.removed == [f"default/{SLICE}"]
    assert owners(kube) in ({SLICE: [("shop", "former")]}, {}), "as soon as it is collected"


async def test_a_slice_of_an_unreadable_service_is_left_alone_and_reported() -> None:
    kube = FakeKube()
    before = preserving_slice_of(kube, preserved_of(service_of(kube)))
    refuse_services(kube, 1, 403, "Forbidden")
    row = await free(kube, SLICES)
    assert {key: item.reason for key, item in row.left.items()} == {f"default/{SLICE}": LeftReason.SERVICE_UNREADABLE}
    assert (row.removed, kube.objects(ENDPOINT_SLICES)) == ([], [before])


@pytest.mark.parametrize(("code", "reason"), [(503, "ServiceUnavailable"), (404, "NotFound")])
async def test_an_unreadable_service_does_not_count_as_deleted(code: int, reason: str) -> None:
    kube = FakeKube()
    service = service_of(kube)
    before = preserving_slice_of(kube, preserved_of(service, "uid-of-the-former-one"))
    refuse_services(kube, 1000, code, reason)
    with pytest.raises(CommandError, match=r"\bdefault/shop-1a2b3c4d5e-0\b"):
        await free(kube, SLICES, 0.0)
    assert kube.objects(ENDPOINT_SLICES) == [before]
    refuse_services(kube, 1, code, reason)
    assert (await free(kube, SLICES)).removed == [f"default/{SLICE}"]
    assert owners(kube) == {SLICE: [("shop", service["metadata"]["uid"])]}


@pytest.mark.parametrize("marks", [{}, {"team": "blue"}], ids=["ours", "it may be another's"])
async def test_a_slice_that_cannot_be_read_goes_with_the_service_of_its_label_and_is_named(
    marks: dict[str, str],
) -> None:
    kube = FakeKube()
    service = service_of(kube, **marks)
    preserving_slice_of(kube, "{")
    row = await free(kube, SLICES)
    assert (row.removed, row.unreadable, row.left) == ([f"default/{SLICE}"], [f"default/{SLICE}"], {})
    assert owners(kube) == {SLICE: [("shop", service["metadata"]["uid"])]}
    assert lacking(row.note, names.ANNOTATION_PRESERVED, f"default/{SLICE}") == []


@pytest.mark.parametrize(
    ("label", "there", "reason"),
    [("shop", False, LeftReason.SERVICE_MISSING), ("", True, LeftReason.SERVICE_UNKNOWN)],
)
async def test_a_slice_without_a_known_service_is_left_alone_with_the_remedy(
    label: str, reason: LeftReason, *, there: bool
) -> None:
    kube = FakeKube()
    if there:
        service_of(kube)
    before = preserving_slice_of(kube, "{", label=label)
    row = await free(kube, SLICES)
    assert {key: item.reason for key, item in row.left.items()} == {f"default/{SLICE}": reason}
    assert (row.there, row.removed, kube.objects(ENDPOINT_SLICES)) == (1, [], [before])
    assert lacking(row.note, f"kubectl delete endpointslice -n default {SLICE}") == []


@pytest.mark.parametrize("second", [False, True])
async def test_a_slice_without_its_label_belongs_to_the_service_of_its_annotation_and_name(*, second: bool) -> None:
    kube = FakeKube()
    service = names.second_service_name("shop", "east/1") if second else names.service_name("shop")
    annotations = {names.ANNOTATION_APPLICATION: "shop", names.ANNOTATION_LATTICE: "east/1"}
    metadata = {"name": service, "namespace": "default", "annotations": annotations}
    made_now = kube.put(SERVICES, {"metadata": metadata, "spec": {}})
    name = names.slice_name(service, "http", "IPv4", 0)
    preserving_slice_of(kube, preserved_of(made_now), name, label="")
    await free(kube, SLICES)
    assert owners(kube) == {name: [(service, made_now["metadata"]["uid"])]}


@pytest.mark.parametrize("dry_run", [False, True])
def test_the_caller_is_informed_that_a_slice_was_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, dry_run: bool
) -> None:
    kube = FakeKube()
    before = preserving_slice_of(kube, "{")

    @contextlib.asynccontextmanager
    async def connected(_: object) -> AsyncIterator[FakeKube]:
        yield kube

    monkeypatch.setattr(uninstall, "connected", connected)
    monkeypatch.setattr(uninstall, "client_settings", lambda **_: ClientSettings())
    with pytest.raises(SystemExit) as ended:
        uninstall.uninstall(remove_finalizers=True, timeout="10s", dry_run=dry_run, yes=True, output=Format.JSON)
    assert ended.value.code == EXIT_FAILED
    found = {kind["kind"]: kind for kind in json.loads(capsys.readouterr().out)["kinds"]}["EndpointSlice"]
    assert [(item["name"], item["reason"]) for item in found["unchanged"]] == [(f"default/{SLICE}", "ServiceMissing")]
    assert (found["removed"], kube.objects(ENDPOINT_SLICES)) == ([], [before])


async def test_a_finalizer_that_is_added_again_is_named_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = FakeKube()
    guard = guard_of("Shim")
    kube.put(SHIMS, {"metadata": {"name": "spin", "finalizers": [names.FINALIZER]}})

    async def put_back(*_: object, **__: object) -> None:
        """Leave it as it is: another writer was faster."""

    monkeypatch.setattr(kube, "json_patch", put_back)
    with pytest.raises(CommandError, match=r"\btrellis\.dev/provisioner\b.*\bspin\b"):
        await free(kube, guard, 0.0)


async def test_a_kind_that_is_not_served_has_no_finalizer_to_remove() -> None:
    kube = FakeKube(resources=tuple(item for item in ALL if item is not SHIMS))
    assert (await free(kube, guard_of("Shim"))).there == 0


@pytest.mark.parametrize("served", [False, True])
async def test_objects_of_a_kind_that_cannot_be_listed_keep_their_finalizer(*, served: bool) -> None:
    kube = FakeKube()
    kube.put(SHIMS, {"metadata": {"name": "spin", "finalizers": [names.FINALIZER]}})
    define(kube, served=served)
    refuse(kube, SHIMS)
    with pytest.raises(CommandError, match=r"\bShim\b"):
        await free(kube, guard_of("Shim"), 0.0)
    with pytest.raises((NotServedError, NotFound)):
        await uninstall._look(kube, guard_of("Shim"), None, Row(guard_of("Shim")))


async def test_a_refusal_for_one_kind_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = FakeKube()
    kube.put(SHIMS, {"metadata": {"name": "spin", "finalizers": [names.FINALIZER]}})
    kube.put(HOST_CONFIGS, made([names.FINALIZER_HOSTS], namespace="default"))
    kube.answer_next(
        9,
        lambda _: status_reply(403, "Forbidden", "no"),
        when=lambda request: request.method == "PATCH" and HOST_CONFIGS.plural in request.path,
    )
    with pytest.raises(Forbidden):
        await task_done(kube, monkeypatch)
    assert not kube.objects(SHIMS)[0]["metadata"].get("finalizers")
