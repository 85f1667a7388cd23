"""From annotation to label on a real kube-apiserver and a real nats-server, with simulated nodes."""

from __future__ import annotations

import http
from collections.abc import Iterable
from typing import Any

import pytest

from support.nodes.fleet import Fleet, eventually, is_ours
from support.nodes.installers import LAST_LOG_LINE
from trellis import names
from trellis.bus.streams.tail import TailedEvent
from trellis.provisioning.reasons import Reason

pytestmark = pytest.mark.cluster


def types(events: Iterable[TailedEvent]) -> list[str]:
    return [event.event["type"].removeprefix("dev.trellis.").removesuffix(".v1") for event in events]


async def test_annotated_nodes_are_provisioned_and_nothing_is_left_behind(fleet: Fleet) -> None:
    nodes = fleet.add("node", "node", "node")
    plain = fleet.add("plain", opted_in=False)
    async with fleet.services(max_unavailable="100%"):
        await fleet.all_provisioned(nodes)
        await fleet.quiet()
        for name in nodes:
            annotations = fleet.annotations(name)
            assert annotations[names.ANNOTATION_VERIFIED] == "job"
            assert annotations[names.ANNOTATION_NODE_UID] == fleet.node(name)["metadata"]["uid"]
            assert names.LABEL_WASM_READY not in fleet.labels(name)
        assert names.LABEL_PROVISIONED not in fleet.labels(plain[0])
        events = await fleet.published_events(4 * len(nodes))
        for name in nodes:
            published = types([event for event in events if event.event["subject"] == name])
            # Two services that watch the same: in order is what each of them publishes.
            assert [item for item in published if item.startswith("node.")] == ["node.opted_in", "node.ready"]
            assert [item for item in published if item.startswith("provision.")] == [
                "provision.started",
                "provision.succeeded",
            ]


@pytest.mark.thorough
async def test_a_node_annotated_while_the_services_run_is_provisioned(fleet: Fleet) -> None:
    [name] = fleet.add("node", opted_in=False)
    async with fleet.services():
        await eventually(lambda: fleet.info, "services run")
        fleet.annotate(name, "true")
        await fleet.all_provisioned([name])


@pytest.mark.thorough
async def test_every_linux_node_is_provisioned_automatically_unless_it_opts_out(fleet: Fleet) -> None:
    nodes = fleet.add("node", "node", opted_in=False)
    fleet.add_named(f"out-{fleet.id}", annotation="false")
    async with fleet.services(auto_provision=True):
        await fleet.all_provisioned(nodes)
        assert not fleet.provisioned(f"out-{fleet.id}")


@pytest.mark.thorough
async def test_a_node_with_a_name_of_253_characters(fleet: Fleet) -> None:
    name = ".".join([fleet.id + "a" * 50] * 4) + "." + "z" * 13
    assert len(name) == 253
    fleet.add_named(name)
    async with fleet.services():
        await fleet.all_provisioned([name])
        assert fleet.annotations(name)[names.LABEL_PROVISIONED] == name
        await fleet.quiet()


@pytest.mark.thorough
async def test_another_value_of_the_annotation_is_answered_on_the_node(fleet: Fleet) -> None:
    name = f"node-{fleet.id}"
    fleet.add_named(name, annotation="yes please")
    async with fleet.services():
        message = await fleet.event(name, "InvalidAnnotation")
        assert "'yes please'" in message
        assert not fleet.provisioned(name)


async def test_a_failing_node_shows_the_installers_last_words_and_is_tried_again(fleet: Fleet) -> None:
    [bad] = fleet.add("bad")
    [good] = fleet.add("node")
    async with fleet.services(max_unavailable="1"):
        await fleet.all_provisioned([good])
        await eventually(lambda: names.ANNOTATION_FAILURE in fleet.annotations(bad), "the failure on the node")
        assert LAST_LOG_LINE in fleet.annotations(bad)[names.ANNOTATION_FAILURE]
        assert LAST_LOG_LINE in await fleet.event(bad, "ProvisionFailed")
        assert not fleet.provisioned(bad)
        await eventually(
            lambda: int(fleet.annotations(bad)[names.ANNOTATION_FAILED_ATTEMPT].split("/")[1]) >= 3, "a third attempt"
        )


@pytest.mark.thorough
async def test_a_node_that_fails_once_is_ready_after_the_second_attempt(fleet: Fleet) -> None:
    [flaky] = fleet.add("flaky")
    async with fleet.services():
        await fleet.all_provisioned([flaky])
        assert names.ANNOTATION_FAILURE not in fleet.annotations(flaky)
        events = types(await fleet.published_events(6))
        assert events.count("provision.failed") == 1
        assert events.count("provision.started") == 2


async def test_enough_failing_nodes_halt_the_rollout(fleet: Fleet) -> None:
    bad = fleet.add("bad", "bad")
    late = fleet.add("node", "node", "node", opted_in=False)
    async with fleet.services(max_unavailable="100%", halt_after_failures=2, retry_min=300, retry_max=300):
        for name in bad:
            await eventually(lambda name=name: names.ANNOTATION_FAILURE in fleet.annotations(name), "both failed")
        halted = await eventually(
            lambda: [write for write in fleet.writes() if _halted(write, fleet)], "the ledger says halted"
        )
        assert halted
        for name in late:
            fleet.annotate(name, "true")
        events = types(await fleet.published_events(10))
        assert events.count("rollout.halted") == 1
        assert not any(fleet.provisioned(name) for name in late)
        # the cause is gone: the failing nodes leave, the rollout goes on by itself
        for name in bad:
            fleet.delete(name)
        await fleet.all_provisioned(late)


def _halted(write: dict[str, object], fleet: Fleet) -> bool:
    reference = write.get("objectRef") or {}
    assert isinstance(reference, dict)
    if reference.get("name") != names.LEDGER or reference.get("namespace") != fleet.system:
        return False
    _, found = fleet.api.call("GET", f"/api/v1/namespaces/{fleet.system}/configmaps/{names.LEDGER}")
    return names.ANNOTATION_HALTED in (found["metadata"].get("annotations") or {})


@pytest.mark.thorough
async def test_a_known_handler_must_show_on_the_node(fleet: Fleet) -> None:
    [name] = fleet.add("node")
    async with fleet.services(handler="spin", verify_timeout=60):
        job = await eventually(lambda: fleet.job_of(name), "a Job")
        await eventually(lambda: (fleet.job_of(name) or job)["status"].get("succeeded"), "the Job is complete")
        assert not fleet.provisioned(name)
        fleet.patch(name, {"status": {"runtimeHandlers": [{"name": ""}, {"name": "spin"}]}}, "/status")
        await fleet.all_provisioned([name])
        assert fleet.labels(name)[names.LABEL_WASM_READY] == names.WASM_READY
        assert fleet.annotations(name)[names.ANNOTATION_VERIFIED] == "handler"


@pytest.mark.thorough
async def test_a_handler_that_never_shows_is_a_failure_that_names_it(fleet: Fleet) -> None:
    [name] = fleet.add("node")
    async with fleet.services(handler="spin", verify_timeout=1):
        failure = await eventually(lambda: fleet.annotations(name).get(names.ANNOTATION_FAILURE), "a failure")
        assert "HandlerMissing" in failure
        assert "'spin'" in failure
        assert not fleet.provisioned(name)


@pytest.mark.thorough
async def test_an_image_that_cannot_be_pulled_shows_before_the_deadline(fleet: Fleet) -> None:
    [name] = fleet.add("nopull")
    async with fleet.services(inspect_after=1):
        message = await eventually(lambda: fleet.events(name).get("InstallerNotStarting"), "an Event on the node")
        assert "ErrImagePull: " in message


@pytest.mark.thorough
async def test_an_attempt_that_takes_too_long_fails_with_its_deadline(fleet: Fleet) -> None:
    [name] = fleet.add("hangs")
    async with fleet.services(job_deadline=2):
        failure = await eventually(lambda: fleet.annotations(name).get(names.ANNOTATION_FAILURE), "a failure")
        assert "DeadlineExceeded" in failure


async def test_labels_removed_by_hand_come_back(fleet: Fleet) -> None:
    [name] = fleet.add("node")
    async with fleet.services():
        await fleet.all_provisioned([name])
        fleet.patch(name, {"metadata": {"labels": {names.LABEL_PROVISIONED: None}}})
        await fleet.all_provisioned([name])
        # everything taken away is provisioned anew
        marks = {names.ANNOTATION_DIGEST: None, names.ANNOTATION_VERIFIED: None, names.ANNOTATION_NODE_UID: None}
        fleet.patch(name, {"metadata": {"labels": {names.LABEL_PROVISIONED: None}, "annotations": marks}})
        await fleet.all_provisioned([name])
        assert names.ANNOTATION_DIGEST in fleet.annotations(name)


async def test_a_job_deleted_by_hand_is_made_again(fleet: Fleet) -> None:
    [name] = fleet.add("hangs")
    async with fleet.services():
        first = await eventually(lambda: fleet.job_of(name), "a Job")
        fleet.delete_job(first["metadata"]["name"])
        second = await eventually(
            lambda: (job := fleet.job_of(name)) and job["metadata"]["uid"] != first["metadata"]["uid"] and job,
            "another",
        )
        assert second["metadata"]["name"] == first["metadata"]["name"]


@pytest.mark.thorough
async def test_opting_out_in_mid_work_deletes_the_job(fleet: Fleet) -> None:
    [name] = fleet.add("hangs")
    async with fleet.services():
        await eventually(lambda: fleet.job_of(name), "a Job")
        fleet.annotate(name, None)
        await fleet.quiet()
        assert "provision.removed" in types(await fleet.published_events(4))


async def test_opting_out_removes_the_labels_and_lists_leftovers(fleet: Fleet) -> None:
    [name] = fleet.add("node")
    async with fleet.services():
        await fleet.all_provisioned([name])
        fleet.annotate(name, "false")
        await eventually(lambda: not fleet.provisioned(name), "label gone")
        assert not {key for key in fleet.annotations(name) if key.startswith("trellis.dev/")}
        await fleet.event(name, "RuntimeLeftInPlace")
        fleet.annotate(name, "true")
        await fleet.all_provisioned([name])
        events = types(await fleet.published_events(9))
        assert [event for event in events if event in ("node.opted_in", "node.opted_out")] == [
            "node.opted_in",
            "node.opted_out",
            "node.opted_in",
        ]


@pytest.mark.thorough
async def test_a_node_replaced_under_the_same_name_starts_from_nothing(fleet: Fleet) -> None:
    name = f"hangs-{fleet.id}"
    fleet.add_named(name)
    async with fleet.services():
        first = await eventually(lambda: fleet.job_of(name), "a Job")
        fleet.delete(name)
        fleet.add_named(name)
        uid = fleet.node(name)["metadata"]["uid"]

        def of_the_new_node() -> dict[str, Any] | None:
            fleet.show_pods(name)
            return next((job for job in fleet.jobs() if job["metadata"]["labels"][names.LABEL_NODE_UID] == uid), None)

        second = await eventually(of_the_new_node, "a Job for the new node")
        assert second["metadata"]["name"] != first["metadata"]["name"]
        await eventually(lambda: len(fleet.jobs()) == 1, "the former node's Job is gone")
        assert list(fleet.ledger()) == [uid]


def pods_on(fleet: Fleet, node: str) -> list[dict[str, Any]]:
    """Return the installer pods that are bound to a node's name and have not ended."""
    return [pod for pod in fleet.pods_on(node) if pod["status"].get("phase") not in ("Succeeded", "Failed")]


def end_well(fleet: Fleet, pod: dict[str, Any]) -> None:
    """Write into a pod's status what a kubelet writes whose container ended well."""
    path = f"/api/v1/namespaces/{fleet.installers}/pods/{pod['metadata']['name']}/status"
    status, answer = fleet.api.call("PATCH", path, {"status": {"phase": "Succeeded"}})
    assert status == http.HTTPStatus.OK, answer


@pytest.mark.thorough
async def test_the_pod_of_a_former_node_proves_nothing_and_has_no_second_installer_beside_it(fleet: Fleet) -> None:
    name, stuck = f"node-{fleet.id}", Reason.INSTALLER_POD_STUCK.value
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}

    def appear() -> str:
        fleet.add_named(name, kubelet=False)
        fleet.patch(name, ready, "/status")
        return str(fleet.node(name)["metadata"]["uid"])

    appear()
    async with fleet.services(max_unavailable="1"):
        [old] = await eventually(lambda: pods_on(fleet, name), "an installer pod")
        fleet.delete(name)
        uid = appear()
        await eventually(lambda: stuck in fleet.events(name), "the new node says what it waits for")
    async with fleet.services(max_unavailable="1"):  # others, which did not see the Job go
        [other] = fleet.add("other")
        await fleet.all_provisioned([other])  # no slot is held meanwhile
        assert [pod["metadata"]["uid"] for pod in pods_on(fleet, name)] == [old["metadata"]["uid"]]
        end_well(fleet, old)
        [new] = await eventually(lambda: pods_on(fleet, name), "an installer pod of the new node")
        assert new["metadata"]["labels"][names.LABEL_NODE_UID] == uid
        assert not fleet.provisioned(name)
        end_well(fleet, new)
        await fleet.all_provisioned([name])
        assert fleet.annotations(name)[names.ANNOTATION_NODE_UID] == uid


@pytest.mark.thorough
async def test_a_deleted_node_frees_its_slot(fleet: Fleet) -> None:
    async with fleet.services(max_unavailable="1"):
        await fleet.both_listen()
        [hanging] = fleet.add("hangs")
        await eventually(lambda: fleet.job_of(hanging), "a Job")
        [waiting] = fleet.add("node")
        fleet.delete(hanging)
        await fleet.all_provisioned([waiting])
        events = types(await fleet.published_events(7))
        assert "node.gone" in events


@pytest.mark.thorough
async def test_never_more_nodes_are_in_progress_than_the_limit(fleet: Fleet) -> None:
    offset = fleet.audit_offset()
    nodes = fleet.add(*["node"] * 10, *["flaky"] * 2)
    async with fleet.services(max_unavailable="3"):
        await fleet.all_provisioned(nodes)
        await fleet.quiet()
    assert 1 <= fleet.most_in_progress(offset) <= 3


@pytest.mark.thorough
async def test_a_ledger_deleted_in_mid_work_lets_no_second_wave_begin(fleet: Fleet) -> None:
    nodes = fleet.add("hangs", "hangs", "hangs", "hangs")
    async with fleet.services(max_unavailable="2"):
        await eventually(lambda: len(fleet.jobs()) == 2, "two Jobs")
        fleet.api.call("DELETE", f"/api/v1/namespaces/{fleet.system}/configmaps/{names.LEDGER}")
        working = {job["metadata"]["annotations"][names.ANNOTATION_NODE] for job in fleet.jobs()}
        fleet.delete(min(working))  # frees one slot: the planner meets the missing ledger
        others = set(nodes) - working
        await eventually(lambda: any(fleet.job_of(name) for name in others), "the free slot is used")
        assert len(fleet.ledger()) == 2
        assert len([name for name in nodes[:4] if name in others and fleet.job_of(name)]) == 1


async def test_idle_services_write_nothing_but_their_leases(fleet: Fleet) -> None:
    nodes = fleet.add("node", "node")
    fleet.add_named(f"odd-{fleet.id}", annotation="maybe")
    async with fleet.services():
        await fleet.all_provisioned(nodes)
        await fleet.quiet()
        await eventually(lambda: fleet.events(f"odd-{fleet.id}"), "the odd one is answered")
        offset = fleet.audit_offset()

        def latest() -> list[str]:
            return [write["objectRef"]["resource"] for write in _ours(fleet, offset)][-6:]

        await eventually(lambda: latest() == ["leases"] * 6, "six renewals and nothing else")


def _ours(fleet: Fleet, offset: int) -> list[dict[str, Any]]:
    return [write for write in fleet.writes(offset) if is_ours(write)]
