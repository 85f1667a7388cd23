"""Breaks of what happens to nodes: labels and taints, Shims, slots."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

LABELS: Final = (
    Break(
        "nodes are decided about while Shims cannot be listed",
        "ADR 84: nothing is decided from the empty set that a 404 leaves",
        "node_watcher",
        "decide",
        "if snapshot.unknown:",
        "if snapshot.unknown and snapshot.job is not None:",
        "tests/unit/node_watcher/test_shims_missing.py::test_nothing_is_decided_while_shims_cannot_be_listed",
    ),
    Break(
        "a Job of a former node is proof for its successor",
        "ADR 21: no label without proof",
        "trellis",
        "proof_of",
        "or job.node_uid != node.uid ",
        "",
        "tests/unit/node_watcher/test_decide.py::test_a_job_of_a_former_node_proves_nothing",
    ),
    Break(
        "labels of a ready node are taken without the circuit breaker",
        "architecture: nothing is destroyed en masse",
        "node_watcher",
        "_unmark",
        "if not any(isinstance(step, PatchNode)",
        "if any(isinstance(step, PatchNode)",
        "tests/unit/node_watcher/test_decide.py::test_labels_of_a_ready_node_are_only_taken_with_leave_of_the_breaker",
    ),
    Break(
        "a node loses at once a Shim whose object is gone",
        "ADR 84: what is gone without having been uninstalled stays for a grace",
        "node_watcher",
        "Cache._waits",
        "+ timings.grace - now",
        "- now",
        "tests/unit/node_watcher/test_shims_missing.py::"
        "test_a_node_keeps_for_a_while_what_is_gone_without_having_been_uninstalled_and_says_so_once",
    ),
    Break(
        "a startup taint goes with the first of several Shims",
        "ADR 21: no label without proof",
        "node_watcher",
        "startup_taints_over.over",
        "all(name in proved",
        "any(name in proved",
        "tests/unit/node_watcher/test_shims.py::test_every_shim_of_the_node_that_names_the_taint_has_to_be_proved",
    ),
    Break(
        "a node that lists no handlers has lost them",
        "architecture: nothing is destroyed on silence",
        "node_watcher",
        "vanished",
        "if not node.handlers or (job is not None",
        "if (job is not None",
        "tests/unit/node_watcher/test_vanished.py::test_the_marks_stay_where",
    ),
)

DELETED_SHIMS: Final = (
    Break(
        "a Shim whose CRD cannot be read was deleted by itself",
        "ADR 84: no deletion passes uncounted without having read the CRD",
        "trellis",
        "deleted_alone",
        "if definition is None:",
        "if definition is None and not deleting:",
        "tests/unit/kube/test_deletions.py::test_shims_whose_crd_cannot_be_found_are_no_decision_about_one_shim",
    ),
    Break(
        "of Shims that go together the last counts as gone alone",
        "ADR 27: a deletion with others is a mass deletion",
        "trellis",
        "deleted_alone",
        "min(one.deleted_at - before, after - one.deleted_at)",
        "after - one.deleted_at",
        "tests/unit/kube/test_deletions.py::test_a_shim_is_deleted_alone_if_neither_its_crd_nor_another_shim_is",
    ),
    Break(
        "the finalizer of a Shim goes while nodes have it",
        "ADR 65: a finalizer goes when its work is done",
        "provisioner",
        "_deleting",
        "if any((node.ready and node.skip is None) or not snapshot.patience_over for node in concerned):",
        "if all((node.ready and node.skip is None) or not snapshot.patience_over for node in concerned):",
        "tests/unit/provisioner/test_shim_decide.py::test_nodes_that_cannot_be_reached_are_waited_for_only_so_long",
    ),
    Break(
        "a RuntimeClass of somebody else is deleted with the Shim",
        "architecture: one object, one hand",
        "provisioner",
        "_deleting",
        "snapshot.runtime_class is not None and snapshot.runtime_class.owner == shim.uid",
        "snapshot.runtime_class is not None",
        "tests/unit/provisioner/test_shim_decide.py::test_a_deleted_shim_waits_until_no_node_has_it",
    ),
)

SLOTS: Final = (
    Break(
        "a slot is free although it is taken",
        "shims: a rollout changes so many nodes at once, and no more",
        "provisioner",
        "Slots._free",
        "self._used[name] <",
        "self._used[name] - 1 <",
        "tests/unit/provisioner/test_plan_shims.py::test_no_plan_ever_exceeds_the_limit_of_any_shim",
    ),
    Break(
        "a Job is made although the slot went to another node",
        "ADR 71: a slot is kept from the request for its Job on",
        "provisioner",
        "Cache.job_begins",
        "not slots or len(slots) < len(ledgers) or any(",
        "not slots or any(",
        "tests/unit/provisioner/test_begun.py::"
        "test_no_job_is_made_of_a_slot_that_goes_to_another_node_with_the_plan_being_written",
    ),
    Break(
        "Jobs that run without a ledger take no slot",
        "architecture: Kubernetes is the truth, the bus can be lost",
        "provisioner",
        "plan",
        "entries |= _adopted(snapshot, entries)",
        "entries |= {}",
        "tests/unit/provisioner/test_plan.py::test_jobs_without_a_ledger_are_adopted_before_anything_new_begins",
    ),
    Break(
        "a node that is not ready is begun",
        "ADR 25: nodes that are away are passed by",
        "provisioner",
        "_candidates",
        "or not node.ready or",
        "or",
        "tests/unit/provisioner/test_plan.py::test_a_node_that_is_not_ready_is_passed_by_until_it_is",
    ),
    Break(
        "a skipped node counts and gets a slot",
        "ADR 85: a skipped node is not begun, and counts for no limit",
        "provisioner",
        "plan",
        "node.uid in snapshot.targets and node.skip is None and",
        "node.uid in snapshot.targets and",
        "tests/unit/provisioner/test_skipped.py::test_a_skipped_node_takes_no_slot",
    ),
    Break(
        "one failing node more than the limit is needed for a halt",
        "shims: a rollout halts when so many nodes fail",
        "provisioner",
        "plan",
        "if 0 < limits.halt_after <= failing.get(name, 0)",
        "if 0 < limits.halt_after < failing.get(name, 0)",
        "tests/unit/provisioner/test_plan.py::test_enough_failing_nodes_halt_new_ones_but_not_retries",
    ),
)
