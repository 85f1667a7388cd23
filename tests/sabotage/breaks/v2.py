"""Breaks of wasmCloud v2: conclusions from missing data, subscriptions, and the display."""

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

PODS: Final = (
    Break(
        "pods that cannot be read count as missing",
        "ADR 114, rule 6: pods that cannot be read are unknown",
        "trellis",
        "_pods",
        "if not cluster.snapshot.knows(Part.PODS):",
        "if False:",
        "tests/unit/v2/test_host_groups.py::test_pods_that_cannot_be_read_are_unknown_and_not_absent",
    ),
    Break(
        "a pod of a namespace that was not read counts as missing",
        "ADR 114, rule 6: no missing pod is concluded from some namespaces",
        "trellis",
        "_host",
        "if not cluster.snapshot.knows_all(Part.PODS):",
        "if False:",
        "tests/unit/v2/test_host_groups.py::test_pods_of_the_namespaces_of_hosts_only_prove_no_absence",
    ),
    Break(
        "all pods are read",
        "ADR 114, rule 1: only pods with the label are read",
        "trellis",
        "_read",
        "res, labels = RESOURCES[part], _SELECTORS.get(part)",
        "res, labels = RESOURCES[part], None",
        "tests/unit/trellis_cli/test_v2.py::test_only_pods_of_host_groups_are_read_and_only_with_wasmcloud_v2",
    ),
    Break(
        "an outage is the silence of each host",
        "ADR 111, rule 4: missing heartbeats of all hosts are one outage",
        "trellis",
        "attribute",
        "return Silence.COMMON",
        "return Silence.OWN",
        "tests/unit/v2/test_explain_changes.py::test_silence_of_all_hosts_is_an_outage_and_silence_of_one_is_its_own",
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
    Break(
        "any registry without TLS is asked over plain http",
        "ADR 115: plain http is used for a host only if the user named it as insecure",
        "trellis",
        "Registry._can_be_plain",
        "host in self._insecure",
        "bool(host)",
        "tests/unit/registries/test_registry.py::test_a_registry_without_tls_is_recognised_and_gets_no_login",
    ),
    Break(
        "the challenge of a host that a registry redirects to is answered with the login",
        "ADR 115: a login is sent after a challenge of its own registry",
        "trellis",
        "Registry._get",
        "if answer.moved and self._credentials:",
        "if answer.moved and not self._credentials:",
        "tests/unit/registries/test_registry.py::"
        "test_a_challenge_of_another_host_that_the_registry_redirects_to_gets_no_login",
    ),
    Break(
        "a token server that a registry names over plain http receives the login on any host",
        "ADR 115: such a token server receives the login only if the user named its host as insecure",
        "trellis",
        "Registry._authorize",
        'request.headers and self._reference.scheme == "http"',
        'request.headers and self._reference.scheme == "https"',
        "tests/unit/registries/test_registry.py::"
        "test_over_plain_http_a_token_server_with_tls_on_another_host_gets_no_login",
    ),
)

DISPLAY: Final = (
    Break(
        "a cluster without wasmCloud v2 has watches for it",
        "ADR 112, rule 1: the watches run only while the API group is served",
        "trellis",
        "V2Watches._update",
        "if WORKLOADS.version in versions:",
        "if WORKLOADS.version in versions or not versions:",
        "tests/unit/console/test_v2.py::test_a_cluster_without_wasmcloud_v2_has_no_watch_and_no_row_for_it",
    ),
    Break(
        "a refused request for the API group shows that there is none",
        "ADR 112, rule 1: any answer except that there is no such group is unknown",
        "trellis",
        "V2Watches._update",
        'self._status = PartStatus(INSTALLED, synced=True, lacking={"": (str(error), RETRYING)})',
        "self._status = PartStatus(INSTALLED, synced=True, lacking={}, absent=True)",
        "tests/unit/console/test_v2.py::test_a_refused_request_for_the_group_is_unknown_and_not_absent",
    ),
    Break(
        "Workloads are not evaluated when their host changes",
        "ADR 112, rule 2: an evaluation covers the objects that depend on a change",
        "trellis",
        "V2Composer._changed",
        "for id_ in hosts.ids:",
        "for id_ in ():",
        "tests/unit/read_model/test_composing_v2.py::test_workloads_of_a_host_that_falls_silent_are_evaluated_although_no_other_object_changes",
    ),
    Break(
        "numbers of a host come from its status",
        "ADR 112, rule 5: without heartbeats the numbers are unknown",
        "trellis",
        "v2_host_entity",
        '"workloads": beat.workloads if beat else None,',
        '"workloads": beat.workloads if beat else host.workloads,',
        "tests/unit/read_model/test_composing_v2.py::test_numbers_in_the_status_of_a_host_are_not_used",
    ),
    Break(
        "a viewer without Hosts gets conclusions from their heartbeats",
        "ADR 112, rule 5: a viewer gets the numbers of a host together with its Host",
        "trellis",
        "V2Composer._snapshot",
        "messages=None if Part.HOSTS in unread else messages,",
        "messages=messages,",
        "tests/unit/read_model/test_composing_v2.py::test_heartbeats_of_hosts_that_cannot_be_read_are_not_used",
    ),
)

EVENTS: Final = (
    Break(
        "the end of an outage is taken for silence of each host",
        "ADR 111, rule 4: a missing heartbeat is published only after 65 s of a working operator",
        "host_manager",
        "Evidence.__init__",
        "self._reliable = recording and cluster.older(trust.since, timings.host_look + timings.slack)",
        "self._reliable = recording",
        "tests/unit/host_manager/test_v2_events.py::"
        "test_the_end_of_an_outage_is_no_event_while_hosts_reconnect_one_by_one",
    ),
    Break(
        "the oldest heartbeats are missing when all heartbeats end at once",
        "ADR 111, rule 4: the newest heartbeat is 30 s newer than the last one of a host with a missing heartbeat",
        "host_manager",
        "Evidence.proves",
        "return last is None or continued(last, self._newest, cluster.snapshot.timings)",
        "return True",
        "tests/unit/host_manager/test_v2_events.py::"
        "test_an_outage_of_nats_or_of_the_operator_is_no_event_of_a_hundred_hosts",
    ),
    Break(
        "a kind that cannot be read counts as deleted",
        "ADR 111, rule 5: deletions are concluded only from complete lists",
        "host_manager",
        "knows_enough",
        "return all(cluster.snapshot.knows(part) for part in REQUIRED)",
        "return True",
        "tests/unit/host_manager/test_v2_events.py::test_a_kind_that_is_not_known_deletes_nothing",
    ),
    Break(
        "each replacement of a failed Workload is published",
        "ADR 111, rule 3: a failure has its owner and reason as identity",
        "host_manager",
        "failure_events",
        "if (failing.replica_set, failing.reason) in published.failures.get(owner, ()):",
        "if failing in published.failures:",
        "tests/unit/host_manager/test_v2_events.py::"
        "test_replacements_of_a_failed_workload_are_one_event_until_it_is_ready",
    ),
    Break(
        "an event counts as published before the bus has stored it",
        "ADR 111, rule 2: an event is noted after it is stored",
        "host_manager",
        "V2Reconciler.run",
        "due = decide(cluster, self.cache.published, self.cache.trust)",
        "due = [self.cache.published.note(it) or it for it in decide(cluster, self.cache.published, self.cache.trust)]",
        "tests/unit/host_manager/test_v2_publishing.py::test_an_outage_of_the_bus_loses_and_repeats_nothing",
    ),
    Break(
        "Hosts outside of the watched namespaces count as missing",
        "ADR 111, rule 5: if a kind cannot be read, nothing is published",
        "host_manager",
        "V2Cache.snapshot",
        "if self.confined and not self.hosts:",
        "if False:",
        "tests/unit/host_manager/test_v2_publishing.py::"
        "test_hosts_outside_of_the_configured_namespaces_are_unknown_and_not_missing",
    ),
)
