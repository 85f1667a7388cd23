"""Breaks of wasmCloud v2: what is concluded from missing data, and what is subscribed to."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

CAUSES: Final = (
    Break(
        "a host that cannot be read counts as missing",
        "ADR 109, rule 2: nothing is concluded from the absence of a part that was not read",
        "trellis",
        "unanswered",
        "if not cluster.snapshot.knows(Part.HOSTS):",
        "if cluster.snapshot.knows(Part.HOSTS):",
        "tests/unit/v2/test_explain_changes.py::test_a_host_that_cannot_be_read_is_not_one_that_does_not_exist",
    ),
    Break(
        '"unknown" in the status of a Host is its version',
        'ADR 109, rule 1: "unknown" and 0 in the status of a Host mean not known',
        "trellis",
        "_known",
        'return "" if found == _NOT_KNOWN else found',
        "return found",
        "tests/unit/v2/test_views.py::test_unknown_and_zero_in_the_status_of_a_host_are_not_known",
    ),
    Break(
        "ready replicas of the former revision count for the current one",
        "ADR 109, rule 2: the rules of the operator are evaluated again",
        "trellis",
        "_chain",
        "workloads = cluster.workloads_of(current)",
        "workloads = cluster.workloads_of(cluster.replica_set(deployment, deployment.previous) or current)",
        "tests/unit/v2/test_explain_changes.py::test_the_counts_of_both_revisions_do_not_hide_the_new_one",
    ),
    Break(
        "a heartbeat is missing although messages were dropped",
        "ADR 109, rule 2: nothing is concluded from the absence of a part that was not read",
        "trellis",
        "HostMessages.missed",
        "not self.error and not self.dropped and",
        "not self.error and",
        "tests/unit/v2/test_explain_changes.py::test_too_short_a_time_and_dropped_messages_prove_nothing",
    ),
    Break(
        "workloads that were deleted while listening are unknown to Kubernetes",
        "ADR 109, rule 2: nothing is concluded from the absence of a part that was not read",
        "trellis",
        "Cluster._known_on_host",
        "for workload in (*self.snapshot.workloads, *self.snapshot.former):",
        "for workload in self.snapshot.workloads:",
        "tests/unit/v2/test_explain_changes.py::test_workloads_of_the_time_before_listening_are_no_unknown_workloads",
    ),
)

SOURCES: Final = (
    Break(
        "the replies of the whole account are received without the flag",
        "ADR 109, rule 3: replies need a second flag",
        "trellis_cli",
        "subjects",
        "return (HEARTBEAT_SUBJECT, REPLY_SUBJECT) if replies else (HEARTBEAT_SUBJECT,)",
        "return (HEARTBEAT_SUBJECT, REPLY_SUBJECT)",
        "tests/contract/test_v2_page.py::test_the_nats_permissions_of_the_page_are_those_that_are_used",
    ),
    Break(
        "a pull Secret that cannot be read counts as a denied image",
        "ADR 109, rule 4: an answer of a registry is evidence only if the image is missing or denied",
        "trellis_cli",
        "_ask",
        "return ImageAnswer(ImageState.UNKNOWN, str(error))",
        "return ImageAnswer(ImageState.DENIED, str(error))",
        "tests/unit/trellis_cli/test_v2.py::test_without_the_login_the_answer_is_unknown_and_nobody_is_asked",
    ),
)
