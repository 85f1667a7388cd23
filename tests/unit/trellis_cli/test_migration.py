"""The plan of a migration, from objects as the retired operators leave them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from node_watcher.domain.actions import Snapshot
from node_watcher.domain.decide import decide
from provisioner.domain.resources import Installer
from provisioner.domain.shim_resources import view_runtime_class
from support.nodes.leftovers import Manifest, leftover
from support.suite.naming import lacking
from trellis import names
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.other_controllers import Peer
from trellis.provisioning.shims import view_shim
from trellis.provisioning.targets import target_of
from trellis.provisioning.views import KWASM, NodeView
from trellis_cli.migrate.model.kwasm import Values, plan_kwasm, values_of, with_values
from trellis_cli.migrate.model.plan import (
    ClusterSnapshot,
    DeleteJob,
    Doing,
    PatchDeployment,
    PatchNode,
    PatchShim,
    Rules,
    Step,
    still_writing,
    take_over_controllers,
    view_peer_job,
)
from trellis_cli.migrate.model.rcm import plan_rcm

IMAGE = "ghcr.io/kwasm/kwasm-node-installer:main"
INSTALLER = Installer(IMAGE, "example.invalid/own", "Never", None, "trellis", 60, 0, "1m", "1Mi", "default")
RULES = Rules(INSTALLER, auto_provision=False, require_checksum=True)
WITH_HANDLER = replace(RULES, installer=replace(INSTALLER, handler="spin"))
LONG = "n" * 70

Plan = Callable[[ClusterSnapshot], list[Step]]


def of_kwasm(what: str, node: str = "node-1") -> Manifest:
    return leftover("kwasm", what, node=node, node_uid=f"uid-{node}", namespace="kwasm")


def of_rcm(what: str, node: str = "node-1", shim: str = "spin") -> Manifest:
    return leftover("rcm", what, node=node, node_uid=f"uid-{node}", shim=shim, shim_uid=f"uid-{shim}", namespace="rcm")


def shows(manifest: Manifest, *handlers: str) -> Manifest:
    manifest["status"]["runtimeHandlers"] = [{"name": name} for name in ("", "runc", *handlers)]
    return manifest


def ended(manifest: Manifest, how: str | None) -> Manifest:
    conditions = [{"type": how, "status": "True", "lastTransitionTime": "2026-01-31T08:00:09Z"}] if how else []
    return manifest | {"status": {"conditions": conditions}}


def annotated(manifest: Manifest, value: str | None) -> Manifest:
    manifest["metadata"]["annotations"] = {} if value is None else {names.ANNOTATION_OPT_IN: value}
    return manifest


def labelled(manifest: Manifest, **labels: str) -> Manifest:
    manifest["metadata"]["labels"] |= labels
    return manifest


def world(*manifests: Manifest, rules: Rules = RULES) -> ClusterSnapshot:
    by_kind: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        by_kind.setdefault(manifest["kind"], []).append(manifest)
    return ClusterSnapshot(
        nodes=tuple(map(view_node, by_kind.get("Node", ()))),
        shims=tuple(map(view_shim, by_kind.get("Shim", ()))),
        jobs=tuple(job for job in map(view_peer_job, by_kind.get("Job", ())) if job),
        classes=tuple(map(view_runtime_class, by_kind.get("RuntimeClass", ()))),
        rules=rules,
    )


def patched(manifest: Manifest, ops: Any) -> Manifest:
    """Return the manifest after a JSON patch of ``add``, ``replace`` and ``remove`` in metadata."""
    for op in ops:
        *path, key = (part.replace("~1", "/").replace("~0", "~") for part in op["path"].split("/")[1:])
        place = manifest
        for part in path:
            place = place[part]
        if op["op"] == "test":
            assert place[key] == op["value"]
        elif op["op"] == "remove":
            del place[key]
        else:
            place[key] = op["value"]
    return manifest


def after(plan: Plan, *manifests: Manifest, rules: Rules = RULES) -> list[Manifest]:
    """Return the objects once the plan is carried out."""
    left = {f"{item['kind']} {item['metadata']['name']}": item for item in manifests}
    for step in plan(world(*manifests, rules=rules)):
        match step.write:
            case PatchNode(name, ops):
                patched(left[f"Node {name}"], ops)
            case PatchShim(name, ops):
                patched(left[f"Shim {name}"], ops)
            case DeleteJob(job):
                del left[f"Job {job.name}"]
    return list(left.values())


def taken_over(seen: ClusterSnapshot, name: str = "node-1") -> NodeView:
    """Return a node that both services must find as they want it."""
    node = next(node for node in seen.nodes if node.name == name)
    target = target_of(
        node,
        seen.shims,
        seen.legacy_digest(seen.rules.installer.image),
        auto_provision=seen.rules.auto_provision,
        require_checksum=seen.rules.require_checksum,
    )
    assert target is not None
    assert node.installed == dict(target.shims)
    assert node.marked_digest == target.digest
    watched = decide(Snapshot(node.name, node, None, None, seen.wanted(node)))
    assert [type(action).__name__ for action in watched] == ["Publish", "Publish"]  # no patch: labels are as wanted
    return node


def test_a_node_of_kwasm_is_taken_over_unverified_and_its_job_goes() -> None:
    left = after(plan_kwasm, of_kwasm("node"), of_kwasm("job"))
    node = taken_over(world(*left))
    assert (node.provisioned, node.verified, node.wasm) == ("node-1", "job", None)
    assert [item["kind"] for item in left] == ["Node"]


def test_a_node_of_kwasm_that_lists_the_handler_is_verified() -> None:
    left = after(plan_kwasm, shows(of_kwasm("node"), "spin"), of_kwasm("job"), rules=WITH_HANDLER)
    node = taken_over(world(*left, rules=WITH_HANDLER))
    assert (node.provisioned, node.verified, node.wasm) == ("node-1", "handler", "ready")


def test_an_automatically_provisioned_node_is_taken_over_if_trellis_provisions_so() -> None:
    rules = replace(RULES, auto_provision=True)
    left = after(plan_kwasm, annotated(of_kwasm("node"), None), rules=rules)
    taken_over(world(*left, rules=rules))


def test_a_shim_installed_by_kwasm_from_another_image_is_labelled_and_reported_for_rollout() -> None:
    job = of_kwasm("job")
    job["spec"]["template"]["spec"]["containers"][0]["image"] = "example.com/other:1"
    node, _ = plan_kwasm(world(of_kwasm("node"), job))
    assert "TRELLIS_INSTALLER_IMAGE" in node.reason
    assert lacking(node.reason, "kwasm") == []
    rules = replace(RULES, installer=replace(INSTALLER, image="example.com/other:1"))
    taken_over(world(*after(plan_kwasm, of_kwasm("node"), job, rules=rules), rules=rules))


LEFT_OF_KWASM = {
    "a label with another node's name": ([labelled(of_kwasm("node"), **{names.LABEL_PROVISIONED: "node-9"})], "value"),
    "an opted-out node": ([annotated(of_kwasm("node"), "false")], "opted out"),
    "a value that is no value": ([annotated(of_kwasm("node"), "yes")], "opted out"),
    "a node without annotation": ([annotated(of_kwasm("node"), None)], "--auto-provision"),
    "a Job that failed": ([of_kwasm("node"), ended(of_kwasm("job"), "Failed")], "failed"),
    "a Job that runs": ([of_kwasm("node"), ended(of_kwasm("job"), None)], "still works"),
    "a default Shim": (
        [of_kwasm("node"), labelled(of_rcm("shim"), **{names.LABEL_KWASM_DEFAULT: "true"})],
        "KWasm's default",
    ),
}


@pytest.mark.parametrize("case", LEFT_OF_KWASM)
def test_kwasm_leaves_as_it_is(case: str) -> None:
    manifests, reason = LEFT_OF_KWASM[case]
    steps = plan_kwasm(world(*manifests))
    assert steps
    assert {step.doing for step in steps} == {Doing.LEAVE}
    assert reason in steps[0].reason


def test_a_node_of_kwasm_that_lists_other_handlers_only_is_left_to_be_installed() -> None:
    [step] = plan_kwasm(world(shows(of_kwasm("node")), rules=WITH_HANDLER))
    assert step.doing is Doing.LEAVE
    assert "'spin'" in step.reason


def test_a_job_that_failed_is_kept_for_its_log_on_a_node_that_was_taken_over_before() -> None:
    left = after(plan_kwasm, of_kwasm("node"), of_kwasm("job"))
    [step] = plan_kwasm(world(*left, ended(of_kwasm("job"), "Failed")))
    assert (step.object, step.doing) == ("Job kwasm/node-1-provision-kwasm", Doing.LEAVE)


def test_a_node_that_was_never_provisioned_is_no_matter_of_kwasm() -> None:
    other = of_kwasm("node")
    del other["metadata"]["labels"][names.LABEL_PROVISIONED]
    assert plan_kwasm(world(other)) == []


def test_a_label_of_a_shim_of_trellis_is_ignored_for_kwasm() -> None:
    left = after(plan_rcm, labelled(of_kwasm("node"), spin="provisioned", **{"spin-nodes": "true"}), of_rcm("shim"))
    assert plan_kwasm(world(*left)) == []


def test_a_job_on_a_former_node_of_the_name_is_ignored() -> None:
    job = ended(of_kwasm("job"), "Failed")
    job["metadata"]["ownerReferences"][0]["uid"] = "former"
    node, _ = plan_kwasm(world(of_kwasm("node"), job))
    assert node.doing is Doing.TAKE_OVER


def test_everything_of_runtime_class_manager_is_taken_over() -> None:
    parts = ("node", "shim", "runtime_class", "job")
    [node, shim, runtime_class] = after(plan_rcm, *map(of_rcm, parts))
    seen = taken_over(world(node, shim, runtime_class))
    assert dict(seen.labels)["spin"] == "provisioned"
    assert (seen.verified, seen.wasm) == ("job", None)
    assert shim["metadata"]["finalizers"] == [names.FINALIZER]


def test_a_node_of_runtime_class_manager_that_lists_the_handler_is_verified() -> None:
    left = after(plan_rcm, shows(of_rcm("node"), "spin"), of_rcm("shim"))
    node = taken_over(world(*left))
    assert (node.verified, node.wasm) == ("handler", "ready")


def test_two_shims_on_a_node_are_taken_over_by_one_patch() -> None:
    node = labelled(of_rcm("node"), slight="provisioned", **{"slight-nodes": "true"})
    manifests = [shows(node, "spin", "slight"), of_rcm("shim"), of_rcm("shim", shim="slight")]
    assert [step.object for step in plan_rcm(world(*manifests))].count("Node node-1") == 1
    node = after(plan_rcm, *manifests)[0]
    assert taken_over(world(*manifests)).installed.keys() == {"spin", "slight"}


def test_both_operators_on_one_node_are_taken_over_in_either_order() -> None:
    for first, second in ((plan_kwasm, plan_rcm), (plan_rcm, plan_kwasm)):
        node = labelled(of_kwasm("node"), spin="provisioned", **{"spin-nodes": "true"})
        left = after(second, *after(first, node, of_kwasm("job"), of_rcm("shim")))
        assert taken_over(world(*left)).installed.keys() == {KWASM, "spin"}


LEFT_OF_RCM = {
    "pending": ([labelled(of_rcm("node"), spin="pending"), of_rcm("shim")], "never provisioned"),
    "failed": ([labelled(of_rcm("node"), spin="failed"), of_rcm("shim")], "never provisioned"),
    "not selected any more": ([labelled(of_rcm("node"), **{"spin-nodes": "no"}), of_rcm("shim")], "not for this node"),
    "another handler": ([shows(of_rcm("node"), "slight"), of_rcm("shim")], "none of them"),
    "a Job that runs": ([of_rcm("node"), of_rcm("shim"), ended(of_rcm("job"), None)], "still works"),
    "another architecture": (
        [of_rcm("node") | {"status": {"nodeInfo": {"architecture": "s390x"}}}, of_rcm("shim")],
        "no source for linux/s390x",
    ),
}


@pytest.mark.parametrize("case", LEFT_OF_RCM)
def test_runtime_class_manager_leaves_a_node_as_it_is(case: str) -> None:
    manifests, reason = LEFT_OF_RCM[case]
    step = plan_rcm(world(*manifests))[0]
    assert (step.object, step.doing) == ("Node node-1", Doing.LEAVE)
    assert reason in step.reason


def test_a_shim_in_deletion_without_a_finalizer_of_trellis_is_left_to_the_user() -> None:
    shim = of_rcm("shim")
    shim["metadata"]["deletionTimestamp"] = "2026-01-31T09:00:00Z"
    steps = plan_rcm(world(of_rcm("node"), shim))
    assert {step.doing for step in steps} == {Doing.LEAVE}


@pytest.mark.parametrize(
    ("owner", "handler", "doing"),
    [("uid-spin", "spin", Doing.KEEP), ("another", "spin", Doing.LEAVE), (None, "other", Doing.LEAVE)],
)
def test_a_runtime_class_is_kept_if_it_can_become_the_shims(owner: str | None, handler: str, doing: Doing) -> None:
    found = of_rcm("runtime_class") | {"handler": handler}
    if owner is None:
        del found["metadata"]["ownerReferences"]
    else:
        found["metadata"]["ownerReferences"][0]["uid"] = owner
    [step] = [step for step in plan_rcm(world(of_rcm("shim"), found)) if step.object == "RuntimeClass spin"]
    assert (step.doing, step.write) == (doing, None)


@pytest.mark.parametrize("rules", [RULES, WITH_HANDLER, replace(RULES, require_checksum=False)])
def test_a_second_plan_writes_nothing(rules: Rules) -> None:
    kwasm = after(plan_kwasm, shows(of_kwasm("node"), "spin"), of_kwasm("job"), rules=rules)
    rcm = after(plan_rcm, *map(of_rcm, ("node", "shim", "runtime_class", "job")), rules=rules)
    assert not [step for step in plan_kwasm(world(*kwasm, rules=rules)) if step.write]
    assert not [step for step in plan_rcm(world(*rcm, rules=rules)) if step.write]


def test_each_write_tests_uid_and_version() -> None:
    steps = plan_kwasm(world(of_kwasm("node"))) + plan_rcm(world(of_rcm("node"), of_rcm("shim")))
    assert len(steps) == 3
    for step in steps:
        assert isinstance(step.write, PatchNode | PatchShim)
        assert [op["path"] for op in step.write.ops[:2]] == ["/metadata/uid", "/metadata/resourceVersion"]
        assert {op["op"] for op in step.write.ops[:2]} == {"test"}


THEN = 1_769_846_400.0  # when the recorded managers wrote


@pytest.mark.parametrize(("peer", "data"), [(Peer.KWASM, of_kwasm), (Peer.RCM, of_rcm)])
def test_an_operator_that_runs_or_wrote_just_now_is_seen(peer: Peer, data: Callable[..., Manifest]) -> None:
    deployment, written = data("deployment"), data("node" if peer is Peer.KWASM else "shim")
    assert "Deployment" in still_writing(peer, [deployment], [], THEN)[0]
    [wrote] = still_writing(peer, [], [written], THEN + 60)
    assert lacking(wrote, "1", "300 s", "60 s") == []
    assert still_writing(peer, [], [written], THEN + 3600) == []
    deployment["spec"]["replicas"] = 0
    assert still_writing(peer, [deployment], [], THEN) == []


def test_another_controller_of_that_common_name_is_not_taken_for_the_operator() -> None:
    node = of_kwasm("node")
    node["metadata"]["managedFields"][0]["fieldsV1"] = {"f:metadata": {"f:labels": {"f:example.com/zone": {}}}}
    assert still_writing(Peer.KWASM, [], [node], THEN) == []
    assert still_writing(Peer.RCM, [of_kwasm("deployment")], [of_kwasm("node")], THEN) == []


@pytest.mark.parametrize(("peer", "data"), [(Peer.KWASM, of_kwasm), (Peer.RCM, of_rcm)])
def test_taking_over_beside_an_operator_marks_its_deployment_once(peer: Peer, data: Callable[..., Manifest]) -> None:
    deployment = data("deployment")
    deployment["metadata"]["resourceVersion"] = "7"
    [step] = take_over_controllers(peer, [deployment, *(of("deployment") for of in (of_kwasm, of_rcm) if of != data)])
    assert isinstance(step.write, PatchDeployment)
    assert [op["op"] for op in step.write.ops] == ["test", "test", "add", "add"]
    assert step.write.ops[-1]["path"] == "/metadata/annotations/trellis.dev~1taken-over"
    deployment["metadata"]["annotations"] = {names.ANNOTATION_TAKEN_OVER: "true"}
    assert take_over_controllers(peer, [deployment]) == []
    assert still_writing(peer, [deployment], [], THEN) == []


# --- the values of KWasm's operator ---


def set_to(image: str, auto: str, replicas: int = 0) -> Manifest:
    deployment = of_kwasm("deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "INSTALLER_IMAGE", "value": image}, {"name": "AUTO_PROVISION_NODES", "value": auto}]
    deployment["spec"]["replicas"] = replicas
    return deployment


@pytest.mark.parametrize("replicas", [0, 1])
def test_the_values_of_kwasms_operator_are_read_whether_it_runs_or_not(replicas: int) -> None:
    values = values_of([set_to("example.com/mine:1", "true", replicas)])
    assert values == Values("Deployment kwasm/kwasm-operator", "example.com/mine:1", auto_provision=True)
    assert values_of([of_rcm("deployment")]) is None


def test_placeholders_replace_missing_values_and_are_reported() -> None:
    values = Values("Deployment kwasm/kwasm-operator", "example.com/mine:1", auto_provision=True)
    rules, [note] = with_values(RULES, values, frozenset())
    assert (rules.installer.image, rules.auto_provision) == ("example.com/mine:1", True)
    assert "TRELLIS_INSTALLER_IMAGE=example.com/mine:1 TRELLIS_AUTO_PROVISION=true" in note
    rules, [note] = with_values(RULES, values, frozenset({"installer_image"}))
    assert (rules.installer.image, rules.auto_provision) == (IMAGE, True)
    assert "TRELLIS_INSTALLER_IMAGE" not in note


def test_without_a_job_and_without_an_image_a_node_is_left() -> None:
    rules = replace(RULES, installer=replace(INSTALLER, image=""))
    [step] = plan_kwasm(world(of_kwasm("node"), rules=rules))
    assert step.doing is Doing.LEAVE
    assert "--installer-image" in step.reason


@pytest.mark.parametrize("values", [None, Values("Deployment a/b", None, None), Values("Deployment a/b", IMAGE, False)])
def test_unchanged_values_change_nothing(values: Values | None) -> None:
    assert with_values(RULES, values, frozenset()) == (RULES, [])
