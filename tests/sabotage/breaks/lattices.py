"""Breaks of what comes from lattices: host groups, hosts, Services of applications, their endpoints."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

HOST_GROUPS: Final = (
    Break(
        "while another operator runs, a deleted host group loses the finalizer of that operator",
        "ADR 65: each operator removes its own finalizers",
        "host_manager",
        "_remove_finalizer",
        "if beside else",
        "if not beside else",
        "tests/unit/host_manager/test_decide.py::"
        "test_beside_the_other_operator_a_deleted_group_loses_only_the_finalizer_of_trellis",
    ),
    Break(
        "child objects are written while another operator runs",
        "ADR 22: no writes while another controller runs",
        "host_manager",
        "decide",
        "if snapshot.other is not None:",
        "if snapshot.other is not None and snapshot.glance:",
        "tests/unit/host_manager/test_decide.py::test_beside_the_other_operator_only_a_condition_is_written",
    ),
    Break(
        "a child object of another owner is taken over",
        "architecture: one writer per object",
        "host_manager",
        "_other_owner",
        "and not (older and of_the_name)",
        "and not older",
        "tests/unit/host_manager/test_decide.py::test_a_child_that_belongs_to_another_is_left_alone",
    ),
    Break(
        "objects that the host group does not own are deleted",
        "architecture: one writer per object",
        "host_manager",
        "_deletions",
        'if any(owner.get("uid") == snapshot.group.uid for owner in owners):',
        'if not any(owner.get("uid") == snapshot.group.uid for owner in owners):',
        "tests/unit/host_manager/test_decide.py::test_an_object_that_the_group_does_not_own_is_not_deleted",
    ),
    Break(
        "a host group is deleted after the permit for one of its hosts",
        "ADR 91: a host group is deleted after the permit for each of its hosts",
        "host_manager",
        "FinalizerRelease.wait",
        "if paused_waits else None",
        "if len(paused_waits) == len(pods) else None",
        "tests/unit/host_manager/test_finalizer_release.py::test_a_group_with_more_hosts_than_may_go_stays_when_its_crd_is_deleted",
    ),
    Break(
        "an adopted host group gets the newest template immediately",
        "ADR 30: an adopted host group keeps its template",
        "host_manager",
        "template_label_for",
        "if latest_requested or workload is None:",
        "if latest_requested or workload is None or read_template_label(workload) is None:",
        "tests/unit/host_manager/test_decide.py::test_children_of_the_former_owner_are_taken_over_with_their_template",
    ),
    Break(
        "a list of wadm reverts a deployment that was published after its query",
        "ADR 97: events change the applications without a list",
        "trellis",
        "ModelList.listed",
        "if name not in known or known[name].deployed != version:",
        "if name in known and known[name].deployed == version:",
        "tests/unit/lattice/test_model_list.py::test_a_list_that_is_older_than_a_deployment_does_not_revert_it",
    ),
    Break(
        "an application that was deleted during a list is deployed after it",
        "ADR 97: events change the applications without a list",
        "trellis",
        "ModelList.undeployed",
        "self._meanwhile.pop(name, None)",
        "self._meanwhile.get(name)",
        "tests/unit/lattice/test_model_list.py::test_a_list_that_is_older_than_a_deployment_does_not_revert_it",
    ),
)

HOSTS: Final = (
    Break(
        "each change of a Secret rolls a host group",
        "ADR 53: rolls for changed Secrets have a minimum interval",
        "host_manager",
        "_rests",
        "return 0 <= ago < snapshot.rest",
        "return ago < 0",
        "tests/unit/host_manager/test_restarts.py::"
        "test_a_secret_that_changes_again_and_again_rolls_a_group_once_in_a_while",
    ),
    Break(
        "hosts without heartbeats are restarted in addition to pods that are not ready",
        "ADR 35: a roll is bounded like a drain",
        "host_manager",
        "_recycle",
        "if len(snapshot.pods) != counts.desired or not all(pod.ready for pod in snapshot.pods):",
        "if len(snapshot.pods) != counts.desired:",
        "tests/unit/host_manager/test_lattice.py::test_hosts_without_heartbeat_are_restarted_one_at_a_time_if_configured",
    ),
    Break(
        "the password of a registry is a value in the pod",
        "security: no pod contains a Secret value",
        "host_manager",
        "make_registry_env",
        '"WASMCLOUD_OCI_REGISTRY_PASSWORD", "valueFrom": password',
        '"WASMCLOUD_OCI_REGISTRY_PASSWORD", "value": desired.inputs.registries[0].password',
        "tests/unit/host_manager/test_recorded.py::test_no_credentials_are_shown",
    ),
)

SERVICES: Final = (
    Break(
        "Services are deleted while host groups cannot be listed",
        "ADR 86: no Service is deleted before its lattice answers",
        "service_reflector",
        "owner_of",
        "if not groups.known():",
        "if not groups.known() and groups.all:",
        "tests/unit/service_reflector/test_ownership.py::test_a_service_goes_only_after_an_answer_or_the_grace",
    ),
    Break(
        "a lattice without an answer counts as one without the application",
        "ADR 86: a missing answer does not prove that an application is missing",
        "service_reflector",
        "owner_of",
        "if None in found.values():",
        "if None in found:",
        "tests/unit/service_reflector/test_ownership.py::"
        "test_of_several_groups_one_answer_that_it_is_deployed_is_enough_and_one_that_it_is_not_is_none",
    ),
    Break(
        "unknown applications of a lattice are removed",
        "architecture: no deletion because of missing data",
        "service_reflector",
        "_removals",
        "if service.application and snapshot.lattice_of(service) not in snapshot.unknown:",
        "if service.application:",
        "tests/unit/service_reflector/test_decide.py::test_an_undeployed_application_loses_its_service_and_an_unknown_one_keeps_it",
    ),
    Break(
        "the Service of another owner is overwritten",
        "architecture: one writer per object",
        "service_reflector",
        "_service_names",
        "foreign = there is not None and not there.application and not there.of_other_controller",
        "foreign = there is not None and there.application and not there.of_other_controller",
        "tests/unit/service_reflector/test_decide.py::test_the_service_of_another_owner_is_left_alone_and_reported",
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
        "uninstallation leaves finalizers on Services",
        "ADR 65: uninstallation removes every finalizer",
        "service_reflector",
        "_uninstall",
        "if service.application:",
        "if service.of_other_controller:",
        "tests/unit/service_reflector/test_decide.py::test_uninstalling_lets_every_one_go_and_does_nothing_else",
    ),
)

ENDPOINTS: Final = (
    Break(
        "a terminating pod counts as ready",
        "ADR 38: endpoints have the conditions that Kubernetes would set",
        "service_reflector",
        "make_endpoint",
        "pod.serving and not pod.terminating",
        "pod.serving",
        "tests/unit/service_reflector/test_slices.py::test_an_endpoint_has_the_conditions_ready_serving_and_terminating",
    ),
    Break(
        "a slice has any number of endpoints",
        "ADR 38: at most 100 endpoints per slice",
        "service_reflector",
        "_packed",
        "packed.append((name, new[:ENDPOINTS_MAX]))",
        "packed.append((name, new))",
        "tests/unit/service_reflector/test_slices.py::test_a_change_of_one_pod_writes_one_slice",
    ),
    Break(
        "a re-created Service gets the addresses of another lattice",
        "ADR 100: recorded addresses belong to one application of one lattice",
        "service_reflector",
        "_former",
        "(preserved.application, preserved.lattice) == (target.application, target.lattice)",
        "preserved.application == target.application",
        "tests/unit/service_reflector/test_decide.py::test_addresses_preserved_for_another_lattice_are_not_used",
    ),
    Break(
        "a Service of a former version is deleted before a slice records its addresses",
        "ADR 100: the keeper is written before its Service is deleted",
        "service_reflector",
        "_reflect",
        "yield from _slices(snapshot, claim, target, there)",
        "yield from ()",
        "tests/unit/service_reflector/test_decide.py::"
        "test_a_service_of_a_former_version_that_is_deleted_has_them_there_before_it_goes",
    ),
    Break(
        "the slice with the addresses of a Service is deleted while the owner is unknown",
        "ADR 100: no keeper is deleted while its Service exists",
        "service_reflector",
        "_removals",
        "left = piece.preserved and not (there is not None and belongs_to(piece, there.uid))",
        "left = piece.preserved and not (there is not None and there.application)",
        "tests/unit/service_reflector/test_decide.py::"
        "test_preserved_addresses_are_deleted_with_the_application_but_not_while_it_is_unknown",
    ),
    Break(
        "on uninstallation, the slice of a re-created Service is garbage-collected",
        "ADR 100: the owner of a keeper is the existing Service of the name",
        "trellis_cli",
        "KeptGuard.removal",
        "if service is not None and (preserved is None or view_service(service).application):",
        "if service is not None and preserved is None:",
        "tests/unit/trellis_cli/test_uninstall.py::"
        "test_a_slice_goes_with_the_service_that_there_is_now_and_not_with_the_one_it_was_written_for",
    ),
    Break(
        "uninstallation leaves slices that outlive their Service",
        "ADR 100: no slice is without owner after an uninstallation",
        "trellis_cli",
        "chosen",
        "for guard in (SLICES, *GUARDS))",
        "for guard in GUARDS)",
        "tests/unit/trellis_cli/test_uninstall.py::test_a_confined_host_manager_guards_groups_where_it_looks",
    ),
    Break(
        "a Service is deleted without asking the circuit breaker",
        "ADR 86: no Service is deleted without asking the circuit breaker",
        "service_reflector",
        "Effects.apply",
        "if isinstance(action, RemoveService) and (wait",
        "if isinstance(action, RemoveFinalizer) and (wait",
        "tests/unit/service_reflector/test_apply.py::test_a_service_whose_deletion_is_paused_is_not_deleted",
    ),
)
