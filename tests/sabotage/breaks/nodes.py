"""Breaks of what happens to nodes: labels and taints, Shims, slots."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

LABELS: Final = (
    Break(
        "nodes are reconciled while Shims cannot be listed",
        "ADR 84: a 404 is not an empty set of Shims",
        "node_watcher",
        "decide",
        "if snapshot.unknown:",
        "if snapshot.unknown and snapshot.job is not None:",
        "tests/unit/node_watcher/test_shims_missing.py::test_nothing_is_decided_while_shims_cannot_be_listed",
    ),
    Break(
        "a Job of a former node verifies its successor",
        "ADR 21: no label without verification",
        "trellis",
        "proof_of",
        "or job.node_uid != node.uid ",
        "",
        "tests/unit/node_watcher/test_decide.py::test_a_job_of_a_former_node_proves_nothing",
    ),
    Break(
        "labels of a ready node are removed without asking the circuit breaker",
        "architecture: no mass deletion",
        "node_watcher",
        "_unmark",
        "if not any(isinstance(step, PatchNode)",
        "if any(isinstance(step, PatchNode)",
        "tests/unit/node_watcher/test_decide.py::test_labels_of_a_ready_node_are_only_taken_with_leave_of_the_breaker",
    ),
    Break(
        "a node immediately loses a Shim whose object no longer exists",
        "ADR 84: a Shim that was not uninstalled stays for a grace period",
        "node_watcher",
        "Cache._waits",
        "+ timings.grace - now",
        "- now",
        "tests/unit/node_watcher/test_shims_missing.py::"
        "test_a_node_keeps_a_shim_deleted_without_uninstallation_for_a_while_and_reports_it_once",
    ),
    Break(
        "the startup taint is removed with the first of several Shims",
        "ADR 21: no label without verification",
        "node_watcher",
        "removable_startup_taints.over",
        "all(name in proved",
        "any(name in proved",
        "tests/unit/node_watcher/test_shims.py::test_every_shim_of_the_node_that_names_the_taint_has_to_be_proved",
    ),
    Break(
        "a node that lists no handlers counts as one that lost them",
        "architecture: no deletion because of missing data",
        "node_watcher",
        "vanished",
        "if not node.handlers or (job is not None",
        "if (job is not None",
        "tests/unit/node_watcher/test_vanished.py::test_the_marks_stay_where",
    ),
)

DELETED_SHIMS: Final = (
    Break(
        "a Shim whose CRD cannot be read counts as deleted individually",
        "ADR 84: a CRD that cannot be read counts as being deleted",
        "trellis",
        "deleted_alone",
        "if definition is None:",
        "if definition is None and not deleting:",
        "tests/unit/kube/test_deletions.py::test_shims_whose_crd_cannot_be_found_are_no_decision_about_one_shim",
    ),
    Break(
        "the last of several deleted Shims counts as deleted individually",
        "ADR 27: a deletion of several Shims is a mass deletion",
        "trellis",
        "deleted_alone",
        "min(item.deleted_at - before, after - item.deleted_at)",
        "after - item.deleted_at",
        "tests/unit/kube/test_deletions.py::test_a_shim_is_deleted_alone_if_neither_its_crd_nor_another_shim_is",
    ),
    Break(
        "the finalizer of a Shim is removed while nodes have the Shim",
        "ADR 65: a finalizer is removed after its work is complete",
        "provisioner",
        "_deleting",
        "if any((node.ready and node.skip is None) or not snapshot.patience_over for node in concerned):",
        "if all((node.ready and node.skip is None) or not snapshot.patience_over for node in concerned):",
        "tests/unit/provisioner/test_shim_decide.py::test_nodes_that_cannot_be_reached_are_waited_for_only_so_long",
    ),
    Break(
        "a RuntimeClass of another owner is deleted with the Shim",
        "architecture: one writer per object",
        "provisioner",
        "_deleting",
        "snapshot.runtime_class is not None and snapshot.runtime_class.owner == shim.uid",
        "snapshot.runtime_class is not None",
        "tests/unit/provisioner/test_shim_decide.py::test_a_deleted_shim_waits_until_no_node_has_it",
    ),
    Break(
        "a RuntimeClass without the label of verified nodes counts as unchanged",
        "ADR 122: a RuntimeClass of a Shim selects verified nodes",
        "provisioner",
        "_changes",
        "found.placement.selector == placement.selector,",
        "set(found.placement.selector) <= set(placement.selector),",
        "tests/unit/provisioner/test_shim_decide.py::test_a_runtime_class_that_another_client_changed_is_written_again",
    ),
    Break(
        "pods of one Shim are evicted for another Shim with the same RuntimeClass",
        "ADR 122: pods of one Shim are not evicted for the deletion of another",
        "provisioner",
        "_shims_of",
        "return by_label or frozenset(by_class)",
        "return by_label | frozenset(by_class)",
        "tests/unit/provisioner/test_cache.py::test_pods_are_not_evicted_for_another_shim",
    ),
    Break(
        "the label of a new Shim replaces the one by which another Shim selects the node",
        "shims: a Shim is not installed on a node that another Shim selects by its label",
        "trellis",
        "label_rival_of",
        "overwritten = wanted != names.SHIM_PROVISIONED and",
        "overwritten = wanted == names.SHIM_PROVISIONED and",
        "tests/unit/provisioning/test_targets.py::test_a_shim_does_not_overwrite_the_label_by_which_another_selects",
    ),
    Break(
        "undo of a version removes the tolerations of the RuntimeClass",
        "ADR 122: undo does not change the placement of pods",
        "trellis",
        "restoring",
        "version = _with_placement(revision.version, spec)",
        "version = revision.version",
        "tests/unit/provisioning/test_revisions.py::"
        "test_the_placement_of_pods_is_no_part_of_a_version_and_stays_after_undo",
    ),
)

SLOTS: Final = (
    Break(
        "an occupied slot counts as free",
        "shims: a rollout does not change more nodes at once than the limit",
        "provisioner",
        "Slots._free",
        "self._used[name] <",
        "self._used[name] - 1 <",
        "tests/unit/provisioner/test_plan_shims.py::test_no_plan_ever_exceeds_the_limit_of_any_shim",
    ),
    Break(
        "a Job is created although the slot was given to another node",
        "ADR 71: a slot is kept from the request for its Job",
        "provisioner",
        "Cache.job_begins",
        "not slots or len(slots) < len(ledgers) or any(",
        "not slots or any(",
        "tests/unit/provisioner/test_in_progress.py::"
        "test_no_job_is_made_of_a_slot_that_goes_to_another_node_with_the_plan_being_written",
    ),
    Break(
        "Jobs that run without a ledger occupy no slot",
        "architecture: Kubernetes is the source of truth",
        "provisioner",
        "plan",
        "entries |= _adopted(snapshot, entries)",
        "entries |= {}",
        "tests/unit/provisioner/test_plan.py::test_jobs_without_a_ledger_are_adopted_before_anything_new_begins",
    ),
    Break(
        "an installation starts on a node that is not ready",
        "ADR 25: unavailable nodes are skipped",
        "provisioner",
        "_candidates",
        "or not node.ready",
        "",
        "tests/unit/provisioner/test_plan.py::test_a_node_that_is_not_ready_is_passed_by_until_it_is",
    ),
    Break(
        "a skipped node counts and gets a slot",
        "ADR 85: a skipped node is not started and counts for no limit",
        "provisioner",
        "plan",
        "node.uid in snapshot.targets and node.skip is None and",
        "node.uid in snapshot.targets and",
        "tests/unit/provisioner/test_skipped.py::test_a_skipped_node_takes_no_slot",
    ),
    Break(
        "a halt needs one failing node more than the limit",
        "shims: a rollout halts at the limit of failing nodes",
        "provisioner",
        "plan",
        "if 0 < limits.halt_after <= failing.get(name, 0)",
        "if 0 < limits.halt_after < failing.get(name, 0)",
        "tests/unit/provisioner/test_plan.py::test_enough_failing_nodes_halt_new_ones_but_not_retries",
    ),
)
