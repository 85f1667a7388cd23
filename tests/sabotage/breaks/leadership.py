"""Breaks of what limits a leader: its lease, the claim on nodes, circuit breakers."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

LEADERSHIP: Final = (
    Break(
        "a leader continues until another replica may acquire its Lease",
        "ADR 10: by its own clock, a leader stops before another can start",
        "trellis",
        "Leader.leading",
        "self._timings.renew_deadline",
        "self._timings.duration",
        "tests/unit/kube/test_leader.py::test_a_leader_is_uncertain_before_another_may_take_its_lease",
    ),
    Break(
        "a candidate does not detect the renewal of the Lease",
        "ADR 10: at most one process of a service leads",
        "trellis",
        "Leader._observe",
        "record != self._observed or blind",
        "self._observed is None or blind",
        "tests/unit/kube/test_leader.py::test_a_lease_is_expired_only_when_it_did_not_change_for_its_duration",
    ),
    Break(
        "a leader renews its own Lease from a restored backup",
        "ADR 3: a leadership term starts with full lists",
        "trellis",
        "Leader._renew",
        "or undone or not left",
        "or not left",
        "tests/unit/kube/test_leader.py::test_a_lease_of_its_own_from_a_backup_ends_the_term",
    ),
    Break(
        "the Lease is released while a run of the term continues",
        "ADR 14: the Lease is released after the last run has ended",
        "trellis",
        "Leader._reign",
        "not lost and not cancelled and not still_running",
        "not lost and not cancelled",
        "tests/unit/kube/test_leader.py::test_work_that_is_not_over_keeps_the_lease_from_the_next_one",
    ),
    Break(
        "two renewals may have the same time",
        "ADR 10: clocks of machines are never compared",
        "trellis",
        "with_holder",
        "_micro_time(now) == record.renewed",
        "now == record.renewed",
        "tests/unit/kube/test_leader.py::test_two_consecutive_renewals_differ_for_any_clock",
    ),
)

CLAIM: Final = (
    Break(
        "another installation acquires a deleted claim immediately",
        "ADR 89: one installation provisions the nodes",
        "trellis",
        "Leader._take",
        "self._timings.handover and self._observed is not None",
        "self._timings.handover and self._observed is None",
        "tests/unit/kube/test_claim.py::test_a_claim_that_is_deleted_stays_with_the_installation_that_works",
    ),
    Break(
        "nodes are changed immediately after a handover of the claim",
        "ADR 89: nodes are not changed for some time after a handover",
        "trellis",
        "Claim.settles_in",
        "self._timings.settle - self._leader.seconds_since_other) > 0",
        "self._timings.settle - self._leader.seconds_since_other) > self._timings.settle",
        "tests/unit/kube/test_claim.py::test_a_candidate_that_observed_the_former_holder_uses_its_own_clock",
    ),
)

CIRCUIT_BREAKERS: Final = (
    Break(
        "the limit is the lower of 5 objects and 10 % of a kind",
        "ADR 11: the limit is the higher of 5 objects and 10 % of a kind",
        "trellis",
        "Limits.allowed",
        "max(",
        "min(",
        "tests/unit/limits/test_breaker.py::test_five_may_go_or_ten_percent_and_the_next_one_opens_it",
    ),
    Break(
        "the base of the 10 % is the remaining number of objects",
        "ADR 11: the base of the 10 % is the highest number within the window",
        "trellis",
        "_decide_one",
        "max([population, *(admission.population for admission in state.admissions)])",
        "population",
        "tests/unit/limits/test_breaker.py::"
        "test_a_mass_that_goes_one_by_one_is_measured_by_the_number_there_was_at_first",
    ),
    Break(
        "a permit is granted before it is stored",
        "ADR 11: a permit is stored before a deletion",
        "trellis",
        "Breaker._agree",
        "if self._repair or states != self._settled():",
        "if self._repair:",
        "tests/unit/kube/test_breaker.py::test_leave_is_stored_before_it_is_given_and_a_burst_costs_few_writes",
    ),
    Break(
        "an error of the API server counts as a permit",
        "ADR 11: an error of the API server is not a permit",
        "trellis",
        "Breaker._answer_waiting",
        "request.error = error",
        "request.permitted = True",
        "tests/unit/kube/test_breaker.py::test_an_api_server_that_refuses_means_that_nothing_goes",
    ),
    Break(
        "a record that cannot be parsed counts as closed",
        "ADR 11: a record that cannot be parsed counts as open",
        "trellis",
        "Breaker._read",
        "known.get(kind) or unreadable(self._now(), self.limits)",
        "known.get(kind) or State()",
        "tests/unit/kube/test_breaker.py::test_a_malformed_record_counts_as_open_and_is_repaired",
    ),
    Break(
        "closing a circuit breaker permits all deletions",
        "ADR 11: a close permits the paused objects and nothing else",
        "trellis",
        "close",
        "everything_for is not None, paused",
        "everything_for is None, paused",
        "tests/unit/limits/test_breaker.py::test_closing_releases_paused_deletions_and_nothing_else",
    ),
)
