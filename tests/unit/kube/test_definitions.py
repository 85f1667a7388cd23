"""The owner of a CRD in a cluster, and the message about it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from support.cluster.definitions import foreign_applications, kubevela_applications
from trellis.crds.kinds import APPLICATIONS, KINDS, Kind, make_definition
from trellis.kube.crd_ownership import ADOPTABLE, REFUSED, Place, adopted, standing_of

Manifest = dict[str, Any]
OURS = [*KINDS, APPLICATIONS]
SHIM, HOSTS, *_ = KINDS


def stored(manifest: Manifest, **status: Any) -> Manifest:
    """Return a definition as the API server gives it back, with what it fills in."""
    found = copy.deepcopy(manifest)
    found["metadata"] |= {"uid": "u1", "resourceVersion": "7", "generation": 1}
    found["spec"]["conversion"] = {"strategy": "None"}
    served = [{"type": "Established", "status": "True", "reason": "InitialNamesAccepted"}]
    found["status"] = {"storedVersions": [found["spec"]["versions"][0]["name"]], "conditions": served, **status}
    return found


def registration(name: str, namespace: str = "wasm") -> Manifest:
    return {
        "metadata": {"name": "v1beta1.core.oam.dev"},
        "spec": {"service": {"name": name, "namespace": namespace, "port": 8443}},
    }


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.plural)
def test_an_equal_crd_is_current_and_needs_no_action(kind: Kind) -> None:
    assert standing_of(kind, stored(make_definition(kind)), None).document() == {
        "name": kind.name,
        "state": "Current",
        "message": "",
    }


def test_a_crd_without_a_status_is_not_served_yet() -> None:
    found = standing_of(APPLICATIONS, stored(make_definition(APPLICATIONS), conditions=[]), None)
    assert found.place is Place.CURRENT
    assert found.message != ""


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.plural)
def test_one_that_is_not_there_is_missing_and_the_command_is_named(kind: Kind) -> None:
    found = standing_of(kind, None, None)
    assert found.place is Place.MISSING
    assert f"trellis crds apply {kind.plural}" in found.message


def drop_a_field(spec: Manifest) -> None:
    fields = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del fields[next(iter(fields))]


def add_a_field(spec: Manifest) -> None:
    fields = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["ofYesterday"] = {"type": "string"}


def drop_a_column(spec: Manifest) -> None:
    spec["versions"][0]["additionalPrinterColumns"].pop()


@pytest.mark.parametrize("change", [drop_a_field, add_a_field, drop_a_column])
@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.plural)
def test_one_of_another_version_of_trellis_is_outdated(kind: Kind, change: Any) -> None:
    found = stored(make_definition(kind))
    change(found["spec"])
    assert standing_of(kind, found, None).place is Place.OUTDATED


def test_an_equal_crd_is_managed_by_trellis_regardless_of_labels() -> None:
    found = stored(make_definition(APPLICATIONS))
    found["metadata"]["labels"] = {"app.kubernetes.io/part-of": "platform"}
    assert standing_of(APPLICATIONS, found, None).place is Place.CURRENT


def test_kubevelas_is_known_by_any_of_its_marks_and_can_never_be_adopted() -> None:
    by_names = stored(kubevela_applications())
    del by_names["spec"]["versions"][0]["schema"]
    by_schema = stored(kubevela_applications())
    del by_schema["spec"]["names"]["shortNames"]
    by_annotation = stored(foreign_applications())
    by_annotation["metadata"]["annotations"] = {"cert-manager.io/inject-ca-from": "vela-system/kubevela-root-cert"}
    for found in (by_names, by_schema, by_annotation):
        standing = standing_of(APPLICATIONS, found, None)
        assert standing.place is Place.KUBEVELA
        assert "run Trellis without application_manager" in standing.message
    assert Place.KUBEVELA in REFUSED - ADOPTABLE


def test_an_annotation_with_a_team_called_vela_does_not_make_a_crd_that_of_kubevela() -> None:
    found = stored(make_definition(APPLICATIONS))
    drop_a_field(found["spec"])
    found["metadata"]["annotations"] = {"owner": "team-vela"}
    assert standing_of(APPLICATIONS, found, None).place is Place.OUTDATED


def test_a_crd_of_an_unknown_owner_is_refused_until_a_user_adopts_it() -> None:
    standing = standing_of(APPLICATIONS, stored(foreign_applications()), None)
    assert standing.place is Place.UNKNOWN
    assert "trellis crds apply applications --adopt" in standing.message
    assert standing.place in REFUSED & ADOPTABLE


@pytest.mark.parametrize(
    ("kind", "owner"), [(HOSTS, "wasmcloud-operator"), (SHIM, "runtime-class-manager")], ids=["hosts", "shims"]
)
def test_the_operator_that_is_replaced_is_named(kind: Kind, owner: str) -> None:
    found = stored(make_definition(kind))
    found["metadata"]["labels"] = {}
    drop_a_column(found["spec"])
    standing = standing_of(kind, found, None)
    assert standing.place is Place.FORMER
    assert standing.message.startswith(f"{owner} ")


def test_objects_in_a_foreign_version_have_to_be_migrated_by_their_owner() -> None:
    standing = standing_of(APPLICATIONS, stored(foreign_applications(), storedVersions=["v1alpha2", "v1beta1"]), None)
    assert standing.place is Place.OTHER_VERSION
    assert "v1alpha2" in standing.message
    assert standing.place in REFUSED - ADOPTABLE


@pytest.mark.parametrize("definition", [None, stored(make_definition(APPLICATIONS)), stored(kubevela_applications())])
def test_an_api_in_front_of_it_hides_every_definition(definition: Manifest | None) -> None:
    of_operator = standing_of(APPLICATIONS, definition, registration("wadm-operator"))
    assert of_operator.place is Place.HIDDEN
    assert "`trellis migrate wasmcloud-operator`" in of_operator.message
    of_nobody = standing_of(APPLICATIONS, definition, registration("some-api", "away"))
    assert of_nobody.place is Place.HIDDEN
    assert "Service away/some-api" in of_nobody.message
    assert "kubectl delete apiservice v1beta1.core.oam.dev" in of_nobody.message
    assert Place.HIDDEN in REFUSED - ADOPTABLE


def test_the_api_servers_own_registration_hides_nothing() -> None:
    own = {"metadata": {"name": "v1beta1.core.oam.dev"}, "spec": {"group": "core.oam.dev"}}
    assert standing_of(APPLICATIONS, stored(make_definition(APPLICATIONS)), own).place is Place.CURRENT


def test_an_error_of_the_api_server_is_reported_in_its_words() -> None:
    condition = {"type": "NamesAccepted", "status": "False", "reason": "PluralConflict", "message": "it is in use"}
    found = stored(make_definition(APPLICATIONS), conditions=[condition])
    assert "PluralConflict: it is in use" in standing_of(APPLICATIONS, found, None).message


def test_adopting_names_what_was_read_and_keeps_the_marks_of_others() -> None:
    found = stored(foreign_applications(shortNames=["a"]))
    found["metadata"]["annotations"] = {"note": "theirs"}
    made = adopted(APPLICATIONS, found)
    assert made["spec"] == make_definition(APPLICATIONS)["spec"]
    assert made["metadata"] == {
        "name": APPLICATIONS.name,
        "uid": "u1",
        "resourceVersion": "7",
        "labels": {"made-by": "somebody", "app.kubernetes.io/part-of": "trellis"},
        "annotations": {"note": "theirs"},
    }
