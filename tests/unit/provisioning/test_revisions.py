"""The versions of a Shim, and the way back to one."""

from __future__ import annotations

from typing import Any

import pytest

from trellis.provisioning.revisions import (
    KEPT,
    Revision,
    former_of,
    label_selector,
    make_revision,
    restored,
    restoring,
    revisions_of,
    same_as,
    surplus,
    version_of,
)
from trellis.provisioning.shims import view_shim

SPEC: dict[str, Any] = {
    "fetchStrategy": {"anonHttp": {"location": "https://example.com/v1"}},
    "runtimeClass": {"name": "spin", "handler": "spin"},
    "nodeSelector": {"a": "b"},
    "rolloutStrategy": {"type": "recreate"},
    "paused": True,
}
VERSION = {name: SPEC[name] for name in ("fetchStrategy", "runtimeClass")}


def stored(number: int, version: dict[str, Any], owner: str = "uid-1") -> dict[str, Any]:
    manifest = make_revision("spin", owner, version, number, "trellis")
    return manifest | {"metadata": manifest["metadata"] | {"uid": f"uid-r{number}", "resourceVersion": "5"}}


def test_a_version_is_what_nodes_get_and_not_how_it_is_rolled_out() -> None:
    assert version_of({"spec": SPEC}) == VERSION
    assert version_of({}) == {}


def test_revisions_are_read_back_by_number_and_only_of_the_same_shim() -> None:
    manifests = [stored(3, {"fetchStrategy": {}}), stored(1, VERSION), stored(2, VERSION, "a former one's uid")]
    found = revisions_of("uid-1", manifests)
    assert [(item.number, item.version) for item in found] == [(1, VERSION), (3, {"fetchStrategy": {}})]


@pytest.mark.parametrize("name", ["spin", "s" * 253, "a" * 199 + "." + "b" * 53])
def test_a_revisions_name_and_label_are_accepted_by_kubernetes(name: str) -> None:
    metadata = make_revision(name, "uid-1", VERSION, 1, "trellis")["metadata"]
    assert len(metadata["name"]) <= 253
    assert ".-" not in metadata["name"]
    assert len(label_selector(name).partition("=")[2]) <= 63


def test_a_version_has_one_name_for_any_spelling() -> None:
    first, again, other = (
        make_revision("spin", uid, version, number, "trellis")["metadata"]["name"]
        for uid, version, number in (("u", VERSION, 1), ("u", VERSION, 2), ("u", {}, 1))
    )
    assert first == again != other


def test_back_is_to_the_newest_version_that_is_another() -> None:
    revisions = revisions_of("uid-1", [stored(1, {"a": 1}), stored(2, VERSION)])
    assert former_of(revisions, VERSION) == revisions[0]
    assert same_as(revisions, VERSION) == revisions[1]
    assert former_of(revisions[1:], VERSION) is None


def test_revisions_that_nodes_still_have_are_kept_beyond_the_limit() -> None:
    revisions = revisions_of("uid-1", [stored(number, {"runtimeClass": number}) for number in range(1, KEPT + 4)])
    assert [item.number for item in surplus(revisions, VERSION)] == [1, 2, 3, 4]
    assert [item.number for item in surplus(revisions, VERSION, {revisions[1].name})] == [1, 3, 4]


def test_a_shim_with_a_former_version_has_nothing_of_a_later_one() -> None:
    spec = SPEC | {"containerdRuntimeOptions": {"x": "y"}, "fetchStrategy": {}}
    assert restored(Revision("r", "u", "1", 1, VERSION), {"kind": "Shim", "spec": spec}) == {
        "kind": "Shim",
        "spec": SPEC,
    }


def test_going_back_gives_the_version_whole_and_leaves_the_rest() -> None:
    spec = SPEC | {"containerdRuntimeOptions": {"x": "y"}}
    ops = restoring(Revision("r", "u", "1", 1, VERSION), {"spec": spec})
    assert ops == [
        {"op": "add", "path": "/spec/fetchStrategy", "value": VERSION["fetchStrategy"]},
        {"op": "add", "path": "/spec/runtimeClass", "value": VERSION["runtimeClass"]},
        {"op": "remove", "path": "/spec/containerdRuntimeOptions"},
    ]


def test_the_placement_of_pods_is_no_part_of_a_version_and_stays_after_undo() -> None:
    scheduling = {"tolerations": [{"operator": "Exists"}]}
    placed = SPEC | {"runtimeClass": {**SPEC["runtimeClass"], "scheduling": scheduling}}
    assert version_of({"spec": placed}) == VERSION
    revision = Revision("r", "u", "1", 1, VERSION)
    assert restored(revision, {"spec": placed})["spec"] == placed
    assert {"op": "add", "path": "/spec/runtimeClass", "value": placed["runtimeClass"]} in restoring(
        revision, {"spec": placed}
    )
    assert VERSION["runtimeClass"] == {"name": "spin", "handler": "spin"}


@pytest.mark.parametrize(
    ("text", "seconds"), [("1700000000", 1_700_000_000), ("", 0), ("soon", 0), ("-1", 0), ("9" * 13, 0), ("²", 0)]
)
def test_an_unreadable_acknowledgement_has_no_effect(text: str, seconds: int) -> None:
    metadata = {"name": "spin", "uid": "u", "resourceVersion": "1"}
    annotations = {"trellis.dev/failures-acknowledged-at": text}
    assert view_shim({"metadata": metadata | {"annotations": annotations}, "spec": SPEC}).acknowledged == seconds
