"""Breaks of rollouts: waves, canaries, signatures."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

ROLLOUT: Final = (
    Break(
        "an acknowledgement with a time in the far future acknowledges every failure",
        "ADR 20: a failure is acknowledged after it was reported",
        "provisioner",
        "is_forgiven",
        "failure.at <= limits.forgiven <= latest",
        "failure.at <= limits.forgiven",
        "tests/unit/provisioner/test_plan_shims.py::test_a_mark_from_the_far_future_forgives_nothing",
    ),
    Break(
        "a Job is created while another controller runs",
        "ADR 22: no writes while another controller runs",
        "provisioner",
        "_begin",
        "if snapshot.other is not None:",
        "if snapshot.other is not None and jobs:",
        "tests/unit/provisioner/test_decide.py::test_beside_another_controller_no_job_is_made_and_the_node_states_the_reason",
    ),
    Break(
        "a second installer starts while the first is being deleted",
        "shims: two installers never run on one node",
        "provisioner",
        "to_begin",
        "[*own, *former]",
        "former",
        "tests/unit/provisioner/test_decide.py::test_a_job_deleted_by_hand_is_recreated_after_its_deletion",
    ),
    Break(
        "a Job is deleted before the Node records its outcome",
        "ADR 23: no installer Job is deleted before the Node records its outcome",
        "provisioner",
        "verify",
        "if fulfilled(job, node):",
        "if job.proved or proof:",
        "tests/unit/provisioner/test_decide.py::test_success_is_published_before_the_label_and_the_job_is_deleted_after_it",
    ),
    Break(
        "possible changes of an attempt are dropped with its Job",
        "ADR 79: possible changes of a deleted Job are unconfirmed",
        "provisioner",
        "unconfirmed_shims",
        "if recorded or removed or any(",
        "if recorded or removed or not any(",
        "tests/unit/provisioner/test_unconfirmed.py::test_leftovers_of_an_attempt_with_a_deleted_job",
    ),
    Break(
        "a Job that had a pod is replaced because of a refused pod",
        "ADR 88: no Job that had a pod is deleted for a later refusal",
        "provisioner",
        "pod_refused",
        "if not snapshot.pod_refused or (job.has_pods and not job.suspended):",
        "if not snapshot.pod_refused:",
        "tests/unit/provisioner/test_refused.py::test_a_job_that_had_a_pod_is_not_replaced_for_an_older_refusal",
    ),
)

CANARIES: Final = (
    Break(
        "the default Shim of the chart replaces a Shim of a user",
        "ADR 104: a Shim that the chart did not create is not changed",
        "trellis_cli",
        "write_default",
        "if former is not None and by not in _managers(former):",
        "if former is not None and not by:",
        "tests/unit/trellis_cli/test_shims.py::test_the_default_shim_does_not_take_a_shim_of_a_user",
    ),
    Break(
        "another release changes the nodes of an existing Shim",
        "ADR 104: of an existing Shim only the fetch strategy changes",
        "trellis_cli",
        "write_release",
        '"path": "/spec/fetchStrategy", "value": strategy}',
        '"path": "/spec", "value": wanted["spec"]}',
        "tests/unit/trellis_cli/test_shims.py::test_of_an_existing_shim_only_the_fetch_strategy_changes",
    ),
    Break(
        "a Job counts although its canary did not run",
        "ADR 21: if a canary can run, no label without its success",
        "trellis",
        "proof_of",
        "or (job.canaries and job.proved is None)",
        "or (job.canaries and job.state is None)",
        "tests/unit/provisioner/test_canary.py::test_verified_handlers",
    ),
    Break(
        "a pod of a former Job verifies the new one",
        "ADR 21: a canary verifies only its own Job",
        "provisioner",
        "trial_of",
        "for pod in pods if pod.job_uid == job.uid",
        "for pod in pods if pod.job_uid",
        "tests/unit/provisioner/test_canary.py::test_a_pod_of_a_former_job_counts_for_nothing",
    ),
    Break(
        "a failed change is rolled back on an unavailable node",
        "ADR 21: on a node that is not ready nothing is rolled back",
        "provisioner",
        "take_back",
        "if not node.ready:",
        "if node.ready is None:",
        "tests/unit/provisioner/test_canary.py::test_nothing_is_rolled_back_on_an_unavailable_node",
    ),
    Break(
        "a signature of one image is valid for another",
        "ADR 78: a signature belongs to one checksum",
        "provisioner",
        "_signed_digest",
        'critical["type"] == SIGNATURE_TYPE and critical["image"]["docker-manifest-digest"] == image[1]',
        'critical["type"] == SIGNATURE_TYPE and bool(critical["image"]["docker-manifest-digest"])',
        "tests/unit/provisioner/test_signatures.py::test_a_payload_of_something_else_lets_nothing_in",
    ),
    Break(
        "a Shim is installed if one of its sources is signed",
        "ADR 78: an unsigned source is not installed",
        "provisioner",
        "Keys.judge",
        "if not self._signed(source, by)",
        "if not any(self._signed(*pair) for pair in zip(shim.sources, shim.signatures, strict=True))",
        "tests/unit/provisioner/test_signatures.py::test_the_source_of_each_architecture_is_signed_for_itself",
    ),
    Break(
        "the installer's pod has a token for the API server",
        "security: the installer's Job has no token",
        "provisioner",
        "_pod_spec",
        '"automountServiceAccountToken": False',
        '"automountServiceAccountToken": True',
        "tests/unit/provisioner/test_resources.py::test_no_installer_has_a_token_and_each_privilege_is_documented",
    ),
)
