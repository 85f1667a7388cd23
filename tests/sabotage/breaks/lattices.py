"""Breaks of what comes from lattices: host groups, Services of applications, Applications."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

HOST_GROUPS: Final = (
    Break(
        "beside the other operator a deleted group loses that one's finalizer",
        "ADR 65: who leaves takes its own finalizers along",
        "host_manager",
        "_let_go",
        "if beside else",
        "if not beside else",
        "tests/unit/host_manager/test_decide.py::"
        "test_beside_the_other_operator_a_group_that_is_deleted_loses_our_finalizer_alone",
    ),
    Break(
        "children are written beside the other operator",
        "ADR 22: hands off while another controller runs",
        "host_manager",
        "decide",
        "if snapshot.other is not None:",
        "if snapshot.other is not None and snapshot.glance:",
        "tests/unit/host_manager/test_decide.py::test_beside_the_other_operator_only_a_condition_is_written",
    ),
    Break(
        "a child of somebody else is taken over",
        "architecture: one object, one hand",
        "host_manager",
        "_stranger",
        "and not (older and of_the_name)",
        "and not older",
        "tests/unit/host_manager/test_decide.py::test_a_child_that_belongs_to_another_is_left_alone",
    ),
    Break(
        "what the group does not own is deleted",
        "architecture: one object, one hand",
        "host_manager",
        "_deletions",
        'if any(owner.get("uid") == snapshot.group.uid for owner in owners):',
        'if not any(owner.get("uid") == snapshot.group.uid for owner in owners):',
        "tests/unit/host_manager/test_decide.py::test_what_the_group_does_not_own_is_not_deleted",
    ),
    Break(
        "a group goes once one of its hosts may",
        "ADR 91: a group goes when each of its hosts was permitted",
        "host_manager",
        "Leave.wait",
        "if held else None",
        "if len(held) == len(pods) else None",
        "tests/unit/host_manager/test_leave.py::test_a_group_with_more_hosts_than_may_go_stays_when_its_crd_is_deleted",
    ),
    Break(
        "an adopted group gets the newest template at once",
        "ADR 30: an adopted group keeps its template",
        "host_manager",
        "marks_for",
        "if asked or workload is None:",
        "if asked or workload is None or read_marks(workload) is None:",
        "tests/unit/host_manager/test_decide.py::test_children_of_the_former_owner_are_taken_over_with_their_template",
    ),
)

HOSTS: Final = (
    Break(
        "a Secret that changes again and again rolls a group each time",
        "ADR 53: a group rests between rolls for changed Secrets",
        "host_manager",
        "_rests",
        "return 0 <= ago < snapshot.rest",
        "return ago < 0",
        "tests/unit/host_manager/test_restarts.py::"
        "test_a_secret_that_changes_again_and_again_rolls_a_group_once_in_a_while",
    ),
    Break(
        "silent hosts are restarted beside pods that are not ready",
        "ADR 35: a roll is bounded as a drain is",
        "host_manager",
        "_recycle",
        "if len(snapshot.pods) != counts.desired or not all(pod.ready for pod in snapshot.pods):",
        "if len(snapshot.pods) != counts.desired:",
        "tests/unit/host_manager/test_lattice.py::test_silent_hosts_are_restarted_one_at_a_time_if_that_is_asked_for",
    ),
    Break(
        "a registry's password is a value in the pod",
        "security: a Secret comes out in no pod",
        "host_manager",
        "make_registry_env",
        '"WASMCLOUD_OCI_REGISTRY_PASSWORD", "valueFrom": password',
        '"WASMCLOUD_OCI_REGISTRY_PASSWORD", "value": wish.inputs.registries[0].password',
        "tests/unit/host_manager/test_recorded.py::test_no_credentials_are_shown",
    ),
)

SERVICES: Final = (
    Break(
        "Services go while host groups cannot be read",
        "ADR 86: no Service goes before its lattice answers",
        "service_reflector",
        "owner_of",
        "if not groups.known():",
        "if not groups.known() and groups.all:",
        "tests/unit/service_reflector/test_ownership.py::test_a_service_goes_only_after_an_answer_or_the_grace",
    ),
    Break(
        "a lattice that has not answered lacks the application",
        "ADR 86: a lattice that has not answered is not one without the application",
        "service_reflector",
        "owner_of",
        "if None in found.values():",
        "if None in found:",
        "tests/unit/service_reflector/test_ownership.py::"
        "test_of_several_groups_one_answer_that_it_is_deployed_is_enough_and_one_that_it_is_not_is_none",
    ),
    Break(
        "what is not known of a lattice is removed",
        "architecture: nothing is destroyed on silence",
        "service_reflector",
        "_removals",
        "if one.application and snapshot.lattice_of(one) not in snapshot.unknown:",
        "if one.application:",
        "tests/unit/service_reflector/test_decide.py::test_what_is_not_deployed_goes_and_what_is_not_known_stays",
    ),
    Break(
        "the Service of somebody else is written over",
        "architecture: one object, one hand",
        "service_reflector",
        "_held",
        "foreign = there is not None and not there.application and not there.peers",
        "foreign = there is not None and there.application and not there.peers",
        "tests/unit/service_reflector/test_decide.py::test_the_service_of_somebody_else_is_left_alone_and_told",
    ),
    Break(
        "a lattice of the same name in another namespace decides",
        "security: lattices of two tenants may have one name",
        "service_reflector",
        "successors",
        "groups.by_namespace.get(place, {}).values()",
        "groups.all.values()",
        "tests/unit/service_reflector/test_ownership.py::"
        "test_a_renamed_group_of_the_namespace_follows_and_none_of_another_namespace",
    ),
    Break(
        "uninstalling leaves finalizers on Services",
        "ADR 65: uninstalling removes every finalizer",
        "service_reflector",
        "decide",
        "if one.application and names.WASMCLOUD_OPERATOR_SERVICE in one.finalizers",
        "if one.peers and names.WASMCLOUD_OPERATOR_SERVICE in one.finalizers",
        "tests/unit/service_reflector/test_decide.py::test_uninstalling_lets_every_one_go_and_does_nothing_else",
    ),
)

ENDPOINTS: Final = (
    Break(
        "a pod that ends counts as ready",
        "ADR 38: endpoints say what Kubernetes' own would",
        "service_reflector",
        "make_endpoint",
        "pod.serving and not pod.terminating",
        "pod.serving",
        "tests/unit/service_reflector/test_slices.py::test_an_endpoint_tells_whether_it_is_ready_serves_or_ends",
    ),
    Break(
        "a slice has any number of endpoints",
        "ADR 38: at most 100 endpoints a slice",
        "service_reflector",
        "_packed",
        "packed.append((name, new[:ENDPOINTS_MAX]))",
        "packed.append((name, new))",
        "tests/unit/service_reflector/test_slices.py::test_a_change_of_one_pod_writes_one_slice",
    ),
    Break(
        "a Service that is made again gets another lattice's addresses",
        "ADR 40: addresses are kept on a slice for the same application of the same lattice",
        "service_reflector",
        "_former",
        "(kept.application, kept.lattice) == (mirror.application, mirror.lattice)",
        "kept.application == mirror.application",
        "tests/unit/service_reflector/test_decide.py::test_what_was_kept_for_another_lattices_service_is_not_taken",
    ),
    Break(
        "a Service is deleted without asking the circuit breaker",
        "ADR 86: no Service is deleted without asking the circuit breaker",
        "service_reflector",
        "Effects.apply",
        "if isinstance(action, RemoveService) and (wait",
        "if isinstance(action, LetGo) and (wait",
        "tests/unit/service_reflector/test_apply.py::test_a_service_that_the_circuit_breaker_holds_is_not_deleted",
    ),
)

APPLICATIONS: Final = (
    Break(
        "of two changed sides wadm's counts, whoever manages the object",
        "ADR 41, rule 1: the side that somebody else manages counts",
        "application_manager",
        "_compare",
        "if found.others or wait:",
        "if wait:",
        "tests/unit/application_manager/test_decide.py::"
        "test_of_two_that_changed_the_one_counts_that_somebody_else_manages",
    ),
    Break(
        "an application that wadm lost is deleted",
        "ADR 45: only wadm's storage proves a deletion",
        "application_manager",
        "_absent",
        "if snapshot.wadm is not Absence.GONE or (found.changed and found.others):",
        "if found.changed and found.others:",
        "tests/unit/application_manager/test_decide.py::test_the_side_that_changed_counts",
    ),
    Break(
        "a version of wadm's gets other content",
        "ADR 41, rule 3: a version never gets other content",
        "application_manager",
        "version_of",
        "if has.get(name, digest) == digest",
        "if has.get(name, digest)",
        "tests/unit/application_manager/test_decide.py::test_a_version_never_gets_other_content",
    ),
    Break(
        "marks of kubectl and Helm reach wadm",
        "ADR 41, rule 4: no mark of a tool reaches wadm",
        "trellis",
        "_marks",
        "(_TOOLS.match(key) and not key.startswith(_ASKED)) or (key, value) == _HELM_LABEL",
        "(key, value) == _HELM_LABEL",
        "tests/unit/lattice/test_projection.py::test_marks_of_tools_reach_nobody_and_are_not_said_to_be_ignored",
    ),
    Break(
        "a field that wadm does not take is left out unsaid",
        "ADR 41, rule 4: no field is left out without a condition",
        "trellis",
        "_Reader._known",
        "if key not in known",
        "if key in known",
        "tests/unit/lattice/test_projection.py::test_what_wadm_does_not_take_is_left_out_and_named",
    ),
)

LIVES: Final = (
    Break(
        "a store that does not answer counts as up to date",
        "ADR 41, rule 7: what may be old is said to be",
        "application_manager",
        "verdict_of",
        "if store.silent:",
        "if store.silent and not store.synced_at:",
        "tests/unit/application_manager/test_freshness.py::test_what_holds_of_a_lattice",
    ),
    Break(
        "wadm hears of an object before it has its finalizer",
        "ADR 45: a deletion in Kubernetes reaches wadm first",
        "application_manager",
        "decide",
        "if not found.finalizer:",
        "if not found.finalizer and not isinstance(snapshot.wadm, Absence):",
        "tests/unit/application_manager/test_decide.py::test_a_new_object_gets_its_finalizer_before_wadm_hears_of_it",
    ),
    Break(
        "a model is deleted without asking the circuit breaker",
        "ADR 91: no model is deleted without asking the circuit breaker",
        "application_manager",
        "destroys",
        "DeleteModel | DeleteObject",
        "DeleteObject",
        "tests/unit/application_manager/test_decide.py::"
        "test_what_deletes_one_side_for_the_other_needs_leave_of_the_circuit_breaker",
    ),
    Break(
        "a model that changed since its object was let go stays hidden",
        "ADR 65: a model that changed is shown again",
        "application_manager",
        "Tombstones.holds",
        "revision <= found.revision",
        "revision >= found.revision",
        "tests/unit/application_manager/test_tombstones.py::"
        "test_what_was_let_go_is_known_until_it_changes_also_to_the_next_process",
    ),
    Break(
        "what Kubernetes said before is taken for a change of wadm's",
        "ADR 81: what wadm was told is remembered until it is written down",
        "application_manager",
        "_compare",
        "if base is not None and snapshot.told == model.deployed:",
        "if base is not None and snapshot.told == version:",
        "tests/unit/application_manager/test_decide.py::"
        "test_what_wadm_was_told_of_an_object_that_changed_back_is_no_change_of_wadms",
    ),
)

HOMES: Final = (
    Break(
        "an object that loses its lattice is let go and comes back",
        "ADR 41, rule 6: losing the last group undeploys nothing",
        "application_manager",
        "_deleting",
        "RemoveFinalizer(said, tombstone=True)",
        "RemoveFinalizer(said, tombstone=False)",
        "tests/unit/application_manager/test_decide.py::"
        "test_an_object_whose_lattice_is_not_known_any_more_is_let_go_and_remembered",
    ),
    Break(
        "an Application belongs to the oldest of several lattices",
        "ADR 44: which object an application is",
        "application_manager",
        "lattice_of",
        "marks[0] if len(marks) == 1 else",
        "marks[0] if marks else",
        "tests/unit/application_manager/test_views.py::test_an_object_belongs_to_a_lattice_of_its_own_namespace",
    ),
    Break(
        "a cluster that does not keep the lattice writes over its own change",
        "ADR 46: a cluster claims a lattice",
        "application_manager",
        "_read_only",
        "if found.digest != snapshot.wadm.digests[version] and not found.changed:",
        "if found.digest != snapshot.wadm.digests[version]:",
        "tests/unit/application_manager/test_decide.py::test_a_change_of_what_another_cluster_keeps_stays_and_is_told",
    ),
)
