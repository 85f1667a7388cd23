"""Breaks of Applications: which side counts, what becomes of them, their homes."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

APPLICATIONS: Final = (
    Break(
        "a change of an Application waits for the next full list after the record of a newer version of wash",
        "ADR 101: a run requests the next one itself",
        "application_manager",
        "_both_sides",
        "Decision((newer,), again=0.0)",
        "Decision((newer,))",
        "tests/unit/application_manager/test_decide.py::"
        "test_a_change_beside_a_version_that_wash_put_is_pushed_in_a_run_that_the_record_requests",
    ),
    Break(
        "a status of another writer is taken for the own one",
        "ADR 101: only the own status causes no run",
        "application_manager",
        "Cache.keys_of_change",
        "reported == change.new.resource_version and",
        "",
        "tests/unit/application_manager/test_watches.py::test_a_status_that_this_service_wrote_causes_no_further_run",
    ),
    Break(
        "if both sides changed, wadm takes precedence, also if another field manager owns the spec",
        "ADR 41, rule 1: if another field manager owns the spec, Kubernetes takes precedence",
        "application_manager",
        "_both_sides",
        "if found.others or left:",
        "if left:",
        "tests/unit/application_manager/test_decide.py::"
        "test_of_two_concurrent_changes_the_one_managed_by_another_controller_wins",
    ),
    Break(
        "an application that is missing in wadm without proof of its deletion is deleted",
        "ADR 45: only wadm's storage proves a deletion",
        "application_manager",
        "_absent",
        "if snapshot.wadm is not Absence.DELETED or (found.changed and found.others):",
        "if found.changed and found.others:",
        "tests/unit/application_manager/test_decide.py::test_the_side_that_changed_counts",
    ),
    Break(
        "a version in wadm gets other content",
        "ADR 41, rule 3: a version never gets other content",
        "application_manager",
        "version_of",
        "if has.get(name, digest) == digest",
        "if has.get(name, digest)",
        "tests/unit/application_manager/test_decide.py::test_a_version_never_gets_other_content",
    ),
    Break(
        "annotations of kubectl and Helm reach wadm",
        "ADR 41, rule 4: no label or annotation of a tool reaches wadm",
        "trellis",
        "_marks",
        "(_TOOLS.match(key) and not key.startswith(_SERVICE_ANNOTATIONS)) or (key, value) == _HELM_LABEL",
        "(key, value) == _HELM_LABEL",
        "tests/unit/lattice/test_projection.py::test_labels_of_tools_are_not_projected_and_not_reported_as_ignored",
    ),
    Break(
        "a field that wadm does not support is omitted without a condition",
        "ADR 41, rule 4: no field is omitted without a condition",
        "trellis",
        "_Reader._known",
        "if key not in known",
        "if key in known",
        "tests/unit/lattice/test_projection.py::test_a_field_that_wadm_does_not_accept_is_omitted_and_named",
    ),
)

LIVES: Final = (
    Break(
        "a wadm storage that does not answer counts as up to date",
        "ADR 41, rule 7: possibly outdated state is reported as such",
        "application_manager",
        "verdict_of",
        "if store.unavailable:",
        "if store.unavailable and not store.synced_at:",
        "tests/unit/application_manager/test_freshness.py::test_each_state_of_a_lattice_has_its_status_and_reason",
    ),
    Break(
        "wadm receives an object before the object has its finalizer",
        "ADR 45: a deletion in Kubernetes reaches wadm first",
        "application_manager",
        "_with_finalizer",
        "actions=(first, *decision.actions)",
        "actions=(*decision.actions, first)",
        "tests/unit/application_manager/test_decide.py::test_a_new_object_gets_its_finalizer_before_it_is_sent_to_wadm",
    ),
    Break(
        "a model is deleted without asking the circuit breaker",
        "ADR 91: no model is deleted without asking the circuit breaker",
        "application_manager",
        "deletes",
        "DeleteModel | DeleteObject",
        "DeleteObject",
        "tests/unit/application_manager/test_decide.py::"
        "test_deleting_one_side_because_of_the_other_needs_the_circuit_breaker",
    ),
    Break(
        "a model that changed since the finalizer of its object was removed stays hidden",
        "ADR 65: a changed model is shown again",
        "application_manager",
        "Tombstones.holds",
        "revision <= found.revision",
        "revision >= found.revision",
        "tests/unit/application_manager/test_tombstones.py::"
        "test_a_tombstone_holds_until_its_model_changes_and_survives_a_restart",
    ),
    Break(
        "an application is reconciled before wadm's storage shows the acknowledged change",
        "ADR 43: an acknowledged change is awaited in wadm's storage",
        "application_manager",
        "_compare_unless_awaited",
        "if awaited is not None:",
        "if awaited is not None and awaited.deleted:",
        "tests/unit/application_manager/test_checks.py::"
        "test_nothing_is_decided_before_the_storage_shows_what_wadm_acknowledged",
    ),
    Break(
        "a former state of Kubernetes is treated as a change in wadm",
        "ADR 81: requests to wadm are stored until both sides are recorded as equal",
        "application_manager",
        "_both_sides",
        "if base is not None and snapshot.progress.requested == model.deployed:",
        "if base is not None and snapshot.progress.requested == version:",
        "tests/unit/application_manager/test_decide.py::"
        "test_a_manifest_sent_to_wadm_for_an_object_that_changed_back_is_no_change_of_wadm",
    ),
)

HOMES: Final = (
    Break(
        "an object that is deleted without its lattice is re-created",
        "ADR 41, rule 6: losing the last host group undeploys nothing",
        "application_manager",
        "_deleting",
        "RemoveFinalizer(announcement, tombstone=True)",
        "RemoveFinalizer(announcement, tombstone=False)",
        "tests/unit/application_manager/test_decide.py::"
        "test_an_object_with_an_unknown_lattice_loses_its_finalizer_and_is_recorded",
    ),
    Break(
        "an Application without a label belongs to the first of several lattices",
        "ADR 44: an object that names none of two lattices waits",
        "application_manager",
        "lattice_of",
        "lattice_ids[0] if len(lattice_ids) == 1 else",
        "lattice_ids[0] if lattice_ids else",
        "tests/unit/application_manager/test_views.py::test_an_object_belongs_to_a_lattice_of_its_own_namespace",
    ),
    Break(
        "a cluster that does not own the lattice overwrites a change of its own users",
        "ADR 46: a cluster claims a lattice",
        "application_manager",
        "_read_only",
        "if found.digest != snapshot.wadm.digests[version] and not found.changed:",
        "if found.digest != snapshot.wadm.digests[version]:",
        "tests/unit/application_manager/test_decide.py::test_a_change_of_an_application_of_another_cluster_is_kept_and_reported",
    ),
)
