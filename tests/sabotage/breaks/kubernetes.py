"""Breaks of what every service does with Kubernetes: writes, informers, refused calls, messages to users."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

WRITES: Final = (
    Break(
        "a patch of a leader has no resourceVersion",
        "ADR 9: every write of a leader contains uid and resourceVersion",
        "trellis",
        "require",
        '("uid", "resourceVersion")',
        '("uid",)',
        "tests/unit/kube/test_calls.py::test_a_leader_s_write_must_name_what_was_read",
    ),
    Break(
        "a JSON patch of a leader does not test the uid",
        "ADR 9: every write of a leader contains uid and resourceVersion",
        "trellis",
        "require_tests",
        "for path in (_UID, _VERSION)",
        "for path in (_VERSION,)",
        "tests/unit/kube/test_calls.py::test_a_leader_s_write_must_name_what_was_read",
    ),
    Break(
        "the guard is called before reads instead of writes",
        "ADR 9: a former leader cannot write",
        "trellis",
        "Caller._attempt",
        'request.method != "GET"',
        'request.method == "GET"',
        "tests/unit/kube/test_calls.py::test_the_guard_is_asked_again_before_a_repeated_write",
    ),
    Break(
        "a write with an unknown result is retried",
        "ADR 9: an effect does not happen twice",
        "trellis",
        "Caller._until_answered",
        '_READ_TRIES if request.method == "GET" else 1',
        "_READ_TRIES",
        "tests/unit/kube/test_calls.py::test_a_write_without_a_clear_answer_is_never_repeated",
    ),
    Break(
        "a delay that a server requests has no bound",
        "ADR 90: each delay for a server has a bound",
        "trellis",
        "_retry_after",
        "min(float(number), LONGEST_WAIT)",
        "float(number)",
        "tests/unit/kube/test_calls.py::test_a_wait_that_a_header_asks_for_is_a_minute_at_most",
    ),
    Break(
        "the `Date` of a proxy's error page is used",
        "ADR 94: times of Kubernetes are compared with the clock of the API server",
        "trellis",
        "Caller._note_time",
        "status < _NOT_ITS_OWN",
        "status",
        "tests/unit/kube/test_server_clock.py::"
        "test_each_view_of_a_connection_has_the_time_of_any_answer_but_a_broken_server_s",
    ),
)

INFORMERS: Final = (
    Break(
        "a response that does not match a shape is an error",
        "ADR 103: data that does not match the type is decoded completely",
        "trellis",
        "parse",
        "contextlib.suppress(ValueError)",
        "contextlib.nullcontext()",
        "tests/unit/kube/test_shapes.py::test_data_that_does_not_match_the_shape_is_decoded_completely",
    ),
    Break(
        "a refused list counts as complete",
        "architecture: no deletion because of missing data",
        "trellis",
        "Informer.known",
        " and self._refusal is None",
        "",
        "tests/unit/kube/test_informer.py::test_objects_that_may_not_be_listed_any_more_stay_and_are_unknown",
    ),
    Break(
        "a 404 means that no objects exist, although some are cached",
        "architecture: no deletion because of missing data",
        "trellis",
        "Informer._done_without",
        "self.optional and not self.objects",
        "self.optional",
        "tests/unit/kube/test_informer.py::test_objects_that_may_not_be_listed_any_more_stay_and_are_unknown",
    ),
    Break(
        "another object may have the resourceVersion of the newest change",
        "ADR 90: a storage that was restored from a backup is listed",
        "trellis",
        "Informer._same_history",
        "return same and not older(",
        "return bool(found.items) and not older(",
        "tests/unit/kube/test_informer.py::test_a_restored_store_that_gave_the_version_to_another_object_is_listed",
    ),
    Break(
        "objects whose deletion the watch missed remain after a list",
        "architecture: Kubernetes is the source of truth",
        "trellis",
        "Informer._list",
        "if key not in seen",
        "if key in seen and key not in self.objects",
        "tests/unit/kube/test_informer.py::test_a_full_list_repairs_missed_watch_events",
    ),
    Break(
        "an object that was created during a list counts as deleted",
        "architecture: no deletion because of missing data",
        "trellis",
        "Informer._list",
        "if not self._outdated(key, version):",
        "if key:",
        "tests/unit/kube/test_informer.py"
        "::test_a_list_that_is_older_than_the_result_of_a_write_removes_and_reverts_nothing",
    ),
    Break(
        "a delayed event reverts an object to its state before a write",
        "architecture: Kubernetes is the source of truth",
        "trellis",
        "Informer._take",
        "if self._outdated(key := key_of(event.object), self._version):",
        "if self._outdated(key := key_of(event.object), self._version) and not key:",
        "tests/unit/kube/test_informer.py::test_delayed_events_revert_no_result_of_a_write",
    ),
    Break(
        "an informer counts as stalled while no client gets a response",
        "ADR 90: an unavailable API server does not affect liveness",
        "trellis",
        "Informer._stall_reason",
        "self.kube.answering_for() < self._timings.stalled_after",
        "self.kube.answering_for() < 0",
        "tests/unit/kube/test_informer.py::test_a_stalled_watch_is_fatal_only_while_the_server_answers_others",
    ),
    Break(
        "an empty list of another kind from a proxy counts as a list",
        "architecture: no deletion because of missing data",
        "trellis",
        "is_list_of",
        'found.get("apiVersion") != res.api_version',
        'found.get("apiVersion") is None',
        "tests/unit/kube/test_informer.py::test_an_unexpected_answer_to_a_list_deletes_nothing_and_is_survived",
    ),
)

REFUSALS: Final = (
    Break(
        "a failed call to a webhook is not a refusal",
        "ADR 88: refusals are reported and retried within seconds",
        "trellis",
        "is_refused",
        'return "webhook" in error.message',
        "return False",
        "tests/unit/kube/test_refusals.py::test_an_error_that_only_a_person_can_resolve_is_a_refusal",
    ),
    Break(
        "a thousand refused keys are all retried within seconds",
        "ADR 88: retries of refusals are a few writes per second",
        "trellis",
        "Refusals.failed",
        "self.timings.bound(len(self.refused))",
        "self.timings.bound(1)",
        "tests/unit/kube/test_refusals.py::test_many_refused_keys_do_not_all_come_back_within_seconds",
    ),
    Break(
        "a credential plugin may prompt at the terminal",
        "ADR 90: a plugin has no terminal",
        "trellis",
        "_output",
        "stdin=asyncio.subprocess.DEVNULL",
        "stdin=None",
        "tests/unit/kube/test_exec_plugin.py::test_the_plugin_gets_its_arguments_and_variables_and_no_terminal",
    ),
)

SECRECY: Final = (
    Break(
        "a token with an @ before the password is shown",
        "security: no log, Event or reason contains a Secret",
        "trellis",
        "_hide",
        'user is None or "@" in user',
        "user is None",
        "tests/unit/config/test_redaction.py::test_no_password_survives",
    ),
    Break(
        "readiness shows passwords of addresses",
        "security: no log, Event or reason contains a Secret",
        "trellis",
        "Health.not_ready",
        "redact_url(reason)",
        "reason",
        "tests/unit/telemetry/test_health.py::test_a_reason_shows_no_password",
    ),
    Break(
        "escape characters from a cluster reach the terminal",
        "security: text from a cluster cannot control the terminal",
        "trellis",
        "_one_line",
        "if text.isprintable():",
        "if text.isascii():",
        "tests/unit/telemetry/test_logs.py::test_text_from_the_cluster_cannot_control_the_terminal",
    ),
    Break(
        "a span contains the error text of a refused write of a Secret",
        "security: no span contains a Secret",
        "trellis",
        "_set_error",
        "error.reason if error.call.plural in _SECRET else str(error)",
        "str(error)",
        "tests/unit/kube/test_calls.py::test_a_span_has_no_words_of_a_server_about_a_secret",
    ),
)
