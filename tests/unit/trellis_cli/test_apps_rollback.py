"""Going back to a version: which, what is written, as whom, and who would change it back."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from support.suite.naming import lacking
from support.wadm.asked_wadm import manifest
from trellis.lattice.domain.projection import project
from trellis.read_model.tables.apps import VersionRow
from trellis_cli.apps.model import RollbackError, gitops_of, plan_rollback, target_of

Manifest = dict[str, Any]


def managed(manager: str, operation: str, time: str = "2026-11-22T08:00:00Z", **fields: Any) -> Manifest:
    return {
        "manager": manager,
        "operation": operation,
        "time": time,
        "fieldsV1": {"f:spec": {"f:components": {}}} | fields,
    }


def stored(*managers: Manifest, version: str = "v2", image: str = "example.com/a:2", **metadata: Any) -> Manifest:
    found = manifest("shop", version, image)
    found["metadata"] |= {
        "namespace": "apps",
        "uid": "u1",
        "resourceVersion": "9",
        "managedFields": list(managers),
        **metadata,
    }
    found["status"] = {"synced": {"wadmVersion": version}}
    return found


def done(ops: Any, item: Manifest) -> Manifest:
    """Return the object after a JSON patch of Trellis."""
    found = copy.deepcopy(item)
    for op in ops:
        *path, last = op["path"].strip("/").split("/")
        place = found
        for part in path:
            place = place[part]
        if op["op"] == "test":
            assert place[last] == op["value"]
        else:
            place[last] = op["value"]
    return found


OLD = manifest("shop", "v1", labels={"team": "a"})


def test_a_rollback_writes_exactly_the_version_and_names_it() -> None:
    item = stored(annotations={"version": "v2", "note": "new"}, labels={"tier": "web"})
    plan = plan_rollback(item, OLD, "v1")
    assert plan.is_met_by(done(plan.ops, item))
    after = done(plan.ops, item)
    assert after["metadata"]["annotations"] == {"version": "v1"}
    assert after["metadata"]["labels"] == {"team": "a"}
    assert plan.digest == project(OLD).digest
    assert (plan.former, plan.to, plan.manager) == ("v2", "v1", "kubectl")
    component, annotations, labels, version = plan.changes
    assert lacking(component, "component", "main") == []
    assert lacking(annotations, "annotations") == []
    assert lacking(labels, "labels") == []
    assert lacking(version, "annotation", "version", "v1") == []
    assert not plan.is_met_by(item)


def test_labels_of_tools_and_of_trellis_stay() -> None:
    marks = {"version": "v2", "kubectl.kubernetes.io/last-applied-configuration": "{}", "trellis.dev/undeploy": "true"}
    item = stored(annotations=marks, labels={"trellis.dev/lattice": "edge", "app.kubernetes.io/managed-by": "Helm"})
    plan = plan_rollback(item, OLD, "v1")
    after = done(plan.ops, item)["metadata"]
    assert after["annotations"] == marks | {"version": "v1"}
    assert after["labels"] == {"trellis.dev/lattice": "edge", "app.kubernetes.io/managed-by": "Helm", "team": "a"}
    assert plan.undeployed


def test_an_apply_leaves_out_what_the_manager_never_had_and_keeps_what_it_had() -> None:
    fields = {"f:metadata": {"f:labels": {".": {}, "f:trellis.dev/lattice": {}}, "f:annotations": {"f:gone": {}}}}
    item = stored(
        managed("deployer", "Apply", **fields),
        annotations={"version": "v2", "other.example.com/mark": "theirs", "gone": "1", "trellis.dev/undeploy": "true"},
        labels={"trellis.dev/lattice": "edge"},
    )
    plan = plan_rollback(item, OLD, "v1")
    assert plan.manager == "deployer"
    metadata = plan.applied["metadata"]
    assert metadata["labels"] == {"trellis.dev/lattice": "edge", "team": "a"}
    assert metadata["annotations"] == {"version": "v1"}
    assert (metadata["uid"], metadata["resourceVersion"]) == ("u1", "9")


@pytest.mark.parametrize(
    ("managers", "manager"),
    [
        ((), "kubectl"),
        ((managed("kubectl-client-side-apply", "Update"),), "kubectl"),
        ((managed("trellis.dev/wadm", "Apply"),), "kubectl"),
        ((managed("a", "Apply"), managed("b", "Apply", "2026-11-22T09:00:00Z")), "b"),
    ],
    ids=["nobody", "kubectl apply", "from wadm", "the last of two"],
)
def test_it_is_written_with_the_field_manager_of_the_applier(managers: tuple[Manifest, ...], manager: str) -> None:
    assert plan_rollback(stored(*managers), OLD, "v1").manager == manager


def test_a_rollback_to_the_present_manifest_changes_nothing() -> None:
    item = stored(version="v1", image="example.com/a:1")
    assert plan_rollback(item, manifest("shop", "v1"), "v1").changes == ()


def test_an_overridden_version_gets_a_version_of_its_own() -> None:
    kept = manifest("shop", "overridden-abc", "example.com/a:9")
    item = stored()
    plan = plan_rollback(item, kept, "overridden-abc")
    after = done(plan.ops, item)
    assert "version" not in after["metadata"]["annotations"]
    assert plan.is_met_by(after)


def test_a_manifest_that_cannot_be_read_is_named() -> None:
    with pytest.raises(RollbackError, match=r"\bapps/shop\b"):
        plan_rollback(stored(), {"metadata": {"name": "shop"}, "spec": {"components": 1}}, "v1")


@pytest.mark.parametrize(
    ("item", "tool"),
    [
        (stored(), ""),
        (stored(annotations={"argocd.argoproj.io/tracking-id": "x"}), "Argo CD"),
        (stored(labels={"kustomize.toolkit.fluxcd.io/name": "x"}), "Flux"),
        (stored(labels={"helm.toolkit.fluxcd.io/name": "x"}), "Flux"),
        (stored(annotations={"meta.helm.sh/release-name": "x"}), "Helm"),
        (stored(managed("argocd-controller", "Apply")), "Argo CD"),
        (stored(managed("kustomize-controller", "Apply")), "Flux"),
        (stored(managed("kubectl", "Apply")), ""),
    ],
)
def test_a_manager_that_would_revert_it_is_known(item: Manifest, tool: str) -> None:
    assert gitops_of(item) == tool


V1, V2, V3 = VersionRow("v1", False, False), VersionRow("v2", False, False), VersionRow("v3", True, True)
LOST = VersionRow("overridden-abc", False, False)


@pytest.mark.parametrize(
    ("rows", "to", "target"),
    [
        ([V1, V2, V3], None, "v2"),
        ([V1, LOST, V3], None, "v1"),
        ([V1, V2, V3], "v1", "v1"),
        ([V1, LOST, V3], "overridden-abc", "overridden-abc"),
        ([V1, VersionRow("v2", True, False)], None, "v1"),
    ],
    ids=["the one before", "not one that lost", "the one asked for", "one that lost if asked", "none shown, one runs"],
)
def test_the_version_to_go_back_to(rows: list[VersionRow], to: str | None, target: str) -> None:
    assert target_of(rows, to) == target


@pytest.mark.parametrize(
    ("rows", "to", "names"),
    [
        ([V3], None, ["--to", "v3"]),
        ([V1, V2], None, ["--to", "v1", "v2"]),
        ([V1, V3], "v9", ["v9", "v1", "v3"]),
        ([], None, ["--to"]),
    ],
)
def test_a_missing_history_is_reported(rows: list[VersionRow], to: str | None, names: list[str]) -> None:
    with pytest.raises(RollbackError) as refused:
        target_of(rows, to)
    assert lacking(refused.value, *names) == []
