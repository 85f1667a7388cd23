"""Breaks of the causes of Wasm pods: conclusions from missing data, their order, and the pods that count."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

_PODS: Final = "tests/unit/wasm_pods/test_explain_pod.py"
_OWNERS: Final = "tests/unit/wasm_pods/test_explain_owner.py"
_REPORTED: Final = "tests/unit/provisioner/test_workloads.py"
_DECISIONS: Final = "tests/unit/provisioner/test_workload_decide.py"
_READING: Final = "tests/unit/wasm_pods/test_reading.py"
_WORKLOADS: Final = "tests/unit/wasm_pods/test_workloads.py"
_COMPOSING: Final = "tests/unit/read_model/test_composing_wasm.py"

CAUSES: Final = (
    Break(
        "a RuntimeClass that cannot be read is missing",
        "ADR 120, rule 6: nothing is concluded from the absence of a part that was not read",
        "trellis",
        "runtime_class",
        "if not snapshot.knows(Part.CLASSES):",
        "if snapshot.knows(Part.CLASSES):",
        f"{_PODS}::test_a_part_that_cannot_be_read_is_unknown_and_not_absent",
    ),
    Break(
        "a pod that is ready has the cause of its next start",
        "ADR 120, rule 5: a pod that is ready has no cause",
        "trellis",
        "wrong",
        "Rank.ASIDE if pod.works else Rank.CAUSE",
        "Rank.CAUSE",
        f"{_PODS}::test_a_pod_without_a_cause_is_healthy_or_in_progress",
    ),
    Break(
        "the Event of a sandbox counts after the sandbox exists",
        "ADR 120, rule 3: objects come before words",
        "trellis",
        "_sandbox_words",
        "if pod.sandboxed or pod.works or not pod.node:",
        "if pod.works or not pod.node:",
        f"{_PODS}::test_the_first_line_of_a_pod_is_its_cause",
    ),
    Break(
        "a taint counts although the RuntimeClass tolerates it",
        "ADR 120, rule 3: labels, taints and handlers are read from objects",
        "trellis",
        "with_class",
        "tolerations=(*template.tolerations, *found.tolerations)",
        "tolerations=template.tolerations",
        f"{_PODS}::test_taints_are_tolerated_by_the_pod_and_by_its_runtime_class",
    ),
    Break(
        "the words of the scheduler about labels and taints blame the labels",
        "ADR 120, consequences: a general reason, and never a wrong one",
        "trellis",
        "of_scheduling",
        "if taint is selector:",
        "if not taint and not selector:",
        f"{_PODS}::test_without_permission_for_nodes_the_words_of_the_scheduler_are_the_evidence",
    ),
    Break(
        "the cause of most pods comes first, and not the earliest one",
        "ADR 120, rule 7: the earliest step comes first",
        "trellis",
        "_pods",
        "key=lambda same: (-same[0][1].rank, ORDER.get(Reason(same[0][1].reason), 0))",
        "key=lambda same: (-same[0][1].rank, -len(same))",
        f"{_OWNERS}::test_the_earliest_cause_comes_first_with_the_number_of_its_pods",
    ),
    Break(
        "a rollout whose pods are refused is healthy while the former pods are ready",
        "ADR 120, rule 7: the template is evaluated first",
        "trellis",
        "_workload",
        "if refused is not None and (owner.refused or not enough):",
        "if refused is not None and not enough:",
        f"{_OWNERS}::test_an_owner_has_the_cause_of_its_pods",
    ),
    Break(
        "a sidecar that the kubelet ended last is the cause of a failed pod",
        "ADR 120, rule 2: the first check that is wrong is the cause",
        "trellis",
        "failing",
        "key=lambda item: pod.over and item.sidecar",
        "key=lambda item: False",
        f"{_PODS}::test_the_first_line_of_a_pod_is_its_cause",
    ),
    Break(
        "a pod of a Deployment with a longer name counts",
        "ADR 120, rule 7: the pods of an owner are those that it owns",
        "trellis",
        "_owns",
        'return (pod.owner_kind, pod.owner_group, pod.meta.owner_name) == ("ReplicaSet", DEPLOYMENTS.group, name)',
        'return pod.owner_kind == "ReplicaSet" and pod.meta.owner_name.startswith(owner.meta.name)',
        f"{_READING}::test_a_pod_that_only_has_the_labels_of_a_deployment_is_not_its_own",
    ),
    Break(
        "the log of each pod is read",
        "ADR 120, rule 7: the number of requests does not depend on the number of pods",
        "trellis",
        "_with_logs",
        "[:LOGS_MOST]",
        "[:]",
        f"{_READING}::test_the_number_of_requests_does_not_depend_on_the_number_of_pods",
    ),
    Break(
        "pods of another owner with the same labels count",
        "ADR 120, rule 7: the pods of an owner are those that it owns",
        "trellis",
        "_owns",
        "return bool(owner.meta.uid) and pod.meta.owner == owner.meta.uid",
        "return bool(owner.meta.uid)",
        f"{_READING}::test_the_pods_of_a_workload_are_those_that_it_owns",
    ),
    Break(
        "a SpinApp and its Deployment are two workloads",
        "ADR 125, rule 1: a SpinApp includes its Deployment",
        "trellis",
        "Inventory.top",
        "return above if parent is not None and parent.meta.uid == owner.meta.owner else id_",
        "return id_",
        f"{_WORKLOADS}::test_there_is_one_workload_for_each_owner",
    ),
    Break(
        "a change of a pod does not change its former owner",
        "ADR 125, rule 5: a change evaluates the owners that it concerns",
        "trellis",
        "Inventory.put_pod",
        "for item in (old, pod) if item is not None)}",
        "for item in (pod,) if item is not None)}",
        f"{_WORKLOADS}::test_a_change_names_each_workload_that_it_changes",
    ),
    Break(
        "owners that cannot be read are missing",
        "ADR 125, rule 3: an owner that cannot be read is represented by its pods",
        "trellis",
        "Inventory.row_of",
        "known = id_ in self.owners or id_[0] in self.unread",
        "known = id_ in self.owners",
        f"{_WORKLOADS}::test_pods_stand_for_owners_that_cannot_be_read",
    ),
    Break(
        "a part that is unreadable in one namespace is unknown in all",
        "ADR 125, rule 4: everything is read with the permissions of the viewer, and the rest is shown",
        "trellis",
        "WasmComposer._unread_in",
        'for place in ("", namespace):',
        "for place in lacking:",
        f"{_COMPOSING}::test_a_namespace_without_permission_hides_nothing_of_another_one",
    ),
    Break(
        "owners are evaluated before each kind is read",
        "ADR 125, violations: an owner that counts as missing because it could not be read",
        "trellis",
        "WasmComposer._read",
        "return all(status.synced or status.lacking for status in self._statuses.values())",
        "return bool(self._statuses)",
        f"{_COMPOSING}::test_nothing_is_concluded_before_each_kind_is_read",
    ),
)

REPORTS: Final = (
    Break(
        "a cause counts before the Events of its pod were read",
        "ADR 123, rule 5: a cause that Events can correct is not reported before they were read",
        "provisioner",
        "Gather._verdict",
        "tentative = cause is not None and bool(pod.node) and not self.evidence.knows(pod)",
        "tentative = False",
        f"{_REPORTED}::test_a_cause_waits_for_the_events_that_can_show_another_one",
    ),
    Break(
        "a container that crashes again has recovered",
        "ADR 123, rule 6: all pods have worked for a while",
        "provisioner",
        "decide",
        "if left > 0:",
        "if left > 1e9:",
        f"{_DECISIONS}::test_each_reason_is_published_once_until_the_workload_has_recovered",
    ),
    Break(
        "a new leader does not read the published events",
        "ADR 123, rule 6: the state is the result of the published events",
        "provisioner",
        "WorkloadReconciler._recall",
        "published.restore(event, there)",
        "pass",
        f"{_REPORTED}::test_a_new_leader_publishes_nothing_twice_and_writes_no_second_event",
    ),
    Break(
        "each owner that fails gets an Event at once",
        "ADR 123, rule 9: owners of a namespace share a limit per reason",
        "provisioner",
        "Warnings._is_due",
        "if not limit.take(now):",
        "if limit.take(now) and False:",
        f"{_REPORTED}::test_owners_that_fail_one_after_the_other_cause_no_storm_of_events",
    ),
    Break(
        "a Job of another API group has a CronJob",
        "ADR 123, rule 3: the topmost known controller",
        "provisioner",
        "Owners._controller_of",
        "resource = _OWNED.get((controller.api_version, controller.kind))",
        "resource = {kind: res for (_, kind), res in _OWNED.items()}.get(controller.kind)",
        f"{_REPORTED}::test_the_owner_of_a_job_is_its_cron_job_and_a_foreign_job_is_its_own",
    ),
)
