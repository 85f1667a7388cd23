"""Manifests written into Kubernetes have the digest of wadm's manifests."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from application_manager.domain.resources import make_application, make_spec_patch
from application_manager.domain.views import received_annotation, view_application
from support.wadm.application_objects import spec, stored
from trellis import names
from trellis.crds.application import Application
from trellis.lattice.domain.projection import Projection, project


def projection(name: str = "web", **metadata: Any) -> Projection:
    """Return what wadm holds."""
    manifest = {
        "apiVersion": "core.oam.dev/v1beta1",
        "kind": "Application",
        "metadata": {"name": name, "annotations": {"version": "w1", "description": "from wash"}, **metadata},
        "spec": spec("example.com/echo:2"),
    }
    return project(manifest)


def merged(target: Any, patch: Any) -> Any:
    """Return what a merge patch (RFC 7386) makes of an object."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


@pytest.mark.parametrize("name", ["web", "Web_1"])
def test_a_new_object_shows_what_wadm_holds(name: str) -> None:
    wadm = projection(name, labels={"team": "a"})
    made = make_application("team", names.application_object(name), "red", wadm, "w1")
    Application.model_validate(made)
    server = {"uid": "u", "resourceVersion": "1", "managedFields": []}
    view = view_application(made | {"metadata": made["metadata"] | server})
    assert view.object.digest == wadm.digest
    assert (view.application, view.lattice, view.object.version) == (name, "red", "w1")
    assert view.object.finalizer
    assert not view.object.others


def test_a_lattice_whose_name_is_no_value_of_a_label_is_not_named() -> None:
    made = make_application("team", "web", "x" * 64, projection(), "w1")
    assert names.LABEL_LATTICE not in made["metadata"]["labels"]


def test_an_object_that_is_given_a_manifest_has_nothing_of_its_own_left() -> None:
    former = stored(
        annotations={"version": "v1", "mine": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
        labels={"tier": "x", names.LABEL_LATTICE: "red"},
    )
    former["spec"]["policies"] = [{"name": "p", "type": "t", "properties": {"a": "b"}}]
    former["spec"]["unknown"] = {"kept": True}
    wadm = projection()
    patch = make_spec_patch(former, wadm, "w1", 3)
    after = merged(copy.deepcopy(former), patch)
    view = view_application(after)
    assert view.object.digest == wadm.digest
    assert view.object.written == (wadm.digest, 3)
    assert after["metadata"]["annotations"][names.ANNOTATION_LAST_SYNCED] == received_annotation(wadm.digest, 3)
    assert "kubectl.kubernetes.io/last-applied-configuration" in after["metadata"]["annotations"]
    assert after["metadata"]["labels"] == {names.LABEL_LATTICE: "red"}
    assert view.ignored == ()


def test_an_object_that_cannot_be_read_is_given_a_manifest_all_the_same() -> None:
    broken = stored()
    broken["spec"]["components"][0]["type"] = "module"
    wadm = projection()
    assert view_application(merged(broken, make_spec_patch(broken, wadm, "w1", 0))).object.digest == wadm.digest
