"""Breaks of what every service does with Kubernetes: writes, informers, refused calls, what people are told."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

WRITES: Final = (
    Break(
        "a patch of a leader does not name the resourceVersion",
        "ADR 9: every write of a leader names what was read",
        "trellis",
        "require",
        '("uid", "resourceVersion")',
        '("uid",)',
        "tests/unit/kube/test_calls.py::test_a_leader_s_write_must_name_what_was_read",
    ),
    Break(
        "a JSON patch of a leader need not test the uid",
        "ADR 9: every write of a leader names what was read",
        "trellis",
        "require_tests",
        "for path in (_UID, _VERSION)",
        "for path in (_VERSION,)",
        "tests/unit/kube/test_calls.py::test_a_leader_s_write_must_name_what_was_read",
    ),
    Break(
        "the guard is asked before reads instead of writes",
        "ADR 9: a former leader cannot write",
        "trellis",
        "Caller._attempt",
        'request.method != "GET"',
        'request.method == "GET"',
        "tests/unit/kube/test_calls.py::test_the_guard_is_asked_again_before_a_repeated_write",
    ),
    Break(
        "a write without a clear answer is sent again",
        "ADR 9: an effect does not happen twice",
        "trellis",
        "Caller._until_answered",
        '_READ_TRIES if request.method == "GET" else 1',
        "_READ_TRIES",
        "tests/unit/kube/test_calls.py::test_a_write_without_a_clear_answer_is_never_repeated",
    ),
    Break(
        "a wait that a server asks for has no bound",
        "ADR 90: no wait for a server without an end",
        "trellis",
        "_retry_after",
        "min(float(number), LONGEST_WAIT)",
        "float(number)",
        "tests/unit/kube/test_calls.py::test_a_wait_that_a_header_asks_for_is_a_minute_at_most",
    ),
    Break(
        "the time of a proxy's error page counts",
        "ADR 94: times of Kubernetes are compared with the API server's own clock",
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
        "an answer that does not fit a shape is refused",
        "ADR 103: what does not fit the type is decoded whole",
        "trellis",
        "parse",
        "contextlib.suppress(ValueError)",
        "contextlib.nullcontext()",
        "tests/unit/kube/test_shapes.py::test_what_does_not_fit_is_decoded_whole",
    ),
    Break(
        "a list that was refused counts as known",
        "architecture: nothing is destroyed on silence",
        "trellis",
        "Informer.known",
        " and self._refusal is None",
        "",
        "tests/unit/kube/test_informer.py::test_objects_that_may_not_be_listed_any_more_stay_and_are_unknown",
    ),
    Break(
        "a 404 means that there are no objects, though some are held",
        "architecture: nothing is destroyed on silence",
        "trellis",
        "Informer._done_without",
        "self.optional and not self.objects",
        "self.optional",
        "tests/unit/kube/test_informer.py::test_objects_that_may_not_be_listed_any_more_stay_and_are_unknown",
    ),
    Break(
        "another object may have the version that was seen last",
        "ADR 90: a store that was restored from a backup is listed",
        "trellis",
        "Informer._same_history",
        "return same and not older(",
        "return bool(found.items) and not older(",
        "tests/unit/kube/test_informer.py::test_a_restored_store_that_gave_the_version_to_another_object_is_listed",
    ),
    Break(
        "what the watch missed stays after a list",
        "architecture: Kubernetes is the truth, the bus can be lost",
        "trellis",
        "Informer._list",
        "if key not in seen",
        "if key in seen and key not in self.objects",
        "tests/unit/kube/test_informer.py::test_a_full_list_mends_what_the_watch_missed",
    ),
    Break(
        "an informer is deaf also while nobody gets an answer",
        "ADR 90: a service is not dead because the API server is away",
        "trellis",
        "Informer._deafness",
        "self.kube.answering_for() < self._timings.deaf",
        "self.kube.answering_for() < 0",
        "tests/unit/kube/test_informer.py::test_deafness_is_death_only_while_the_server_answers_others",
    ),
    Break(
        "a proxy's empty list of something else is a list",
        "architecture: nothing is destroyed on silence",
        "trellis",
        "_is_list_of",
        'found.get("apiVersion") != res.api_version',
        'found.get("apiVersion") is None',
        "tests/unit/kube/test_informer.py::"
        "test_what_answers_a_list_with_something_else_deletes_nothing_and_is_survived",
    ),
)

REFUSALS: Final = (
    Break(
        "a failed call to a webhook is no refusal",
        "ADR 88: refusals are reported and retried within seconds",
        "trellis",
        "is_refused",
        'return "webhook" in error.message',
        "return False",
        "tests/unit/kube/test_refusals.py::test_what_only_a_person_can_remove_is_a_refusal",
    ),
    Break(
        "a thousand refused keys all come back within seconds",
        "ADR 88: retries of refusals cost a few writes a second",
        "trellis",
        "Refusals.failed",
        "self.timings.bound(len(self.refused))",
        "self.timings.bound(1)",
        "tests/unit/kube/test_refusals.py::test_many_refused_keys_do_not_all_come_back_within_seconds",
    ),
    Break(
        "a credential plugin may ask at the terminal",
        "ADR 90: a plugin has no terminal to ask a person at",
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
        "security: a Secret comes out in no log, Event or reason",
        "trellis",
        "_hide",
        'user is None or "@" in user',
        "user is None",
        "tests/unit/config/test_redaction.py::test_no_password_survives",
    ),
    Break(
        "readiness shows passwords of addresses",
        "security: a Secret comes out in no log, Event or reason",
        "trellis",
        "Health.not_ready",
        "redact_url(why)",
        "why",
        "tests/unit/telemetry/test_health.py::test_a_reason_shows_no_password",
    ),
    Break(
        "escape characters of a cluster reach the terminal",
        "security: text from a cluster steers no terminal",
        "trellis",
        "_one_line",
        "if text.isprintable():",
        "if text.isascii():",
        "tests/unit/telemetry/test_logs.py::test_what_the_cluster_says_cannot_steer_the_terminal",
    ),
    Break(
        "a span has the words of a refused write of a Secret",
        "security: a Secret comes out in no span",
        "trellis",
        "_mark",
        "error.reason if error.call.plural in _SECRET else str(error)",
        "str(error)",
        "tests/unit/kube/test_calls.py::test_a_span_has_no_words_of_a_server_about_a_secret",
    ),
)
