"""Breaks of controller_host: what a controller sees, where its module comes from, what it may cost, its snapshots."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

CONFINEMENT: Final = (
    Break(
        "an answer about an account is believed for ever",
        "ADR 56: a right that was taken away is believed for 60 s at most",
        "controller_host",
        "Reviews.allowed",
        "found is not None and self._clock() - found[1] < self._timings.keep",
        "found is not None",
        "tests/unit/controller_host/test_reviews.py::test_an_answer_is_believed_for_its_time_and_then_asked_for_again",
    ),
    Break(
        "who may only list is told of changes",
        "ADR 56: a controller sees what its account may list and watch",
        "controller_host",
        "Reviews._review",
        "for verb in _VERBS:",
        "for verb in _VERBS[:1]:",
        "tests/unit/controller_host/test_reviews.py::test_whoever_may_only_list_may_not_be_told",
    ),
    Break(
        "what no rule allows an account is shown to its controller",
        "ADR 56: a controller sees what its account may see",
        "controller_host",
        "Reviews._ask",
        'bool(status.get("allowed")) and not status.get("denied")',
        'bool(status.get("allowed")) or not status.get("denied")',
        "tests/unit/controller_host/test_reviews.py::test_places_and_resources_are_asked_about_apart",
    ),
    Break(
        "an address of IPv4 within one of IPv6 is let through",
        "security: no module's source leads into private networks",
        "controller_host",
        "_meant",
        "address.sixtofour or",
        "",
        "tests/unit/controller_host/test_addresses.py::test_what_only_this_machine_reaches_is_forbidden",
    ),
    Break(
        "credentials of a registry follow a redirect",
        "security: credentials go to the host they were meant for",
        "controller_host",
        "Web.get",
        "if target.origin() != place.origin():",
        "if target.scheme != place.scheme:",
        "tests/unit/controller_host/sources/test_private_registries.py::"
        "test_credentials_do_not_follow_a_redirect_to_another_host",
    ),
    Break(
        "the path of a module may begin at the root",
        "security: a module comes from below its directory",
        "controller_host",
        "_parts",
        'if path.startswith("/") or "\\0" in path:',
        'if "\\0" in path:',
        "tests/unit/controller_host/test_files.py::test_links_and_paths_that_lead_out_are_refused",
    ),
)

COSTS: Final = (
    Break(
        "each controller may pin as much as its whole namespace",
        "ADR 59: what a controller can cost has a bound",
        "controller_host",
        "Acceptance.claim",
        "if taken + size <= self.most.pinned_bytes:",
        "if size <= self.most.pinned_bytes:",
        "tests/unit/controller_host/test_maxima.py::"
        "test_a_namespace_pins_no_more_than_its_share_and_another_has_its_own",
    ),
    Break(
        "a flood of a guest reaches the API server",
        "ADR 59: no more requests than the limit reach a server",
        "controller_host",
        "Calls._answer",
        "if not self._bucket.take(now):",
        "if not self._bucket.rate:",
        "tests/unit/controller_host/test_calling.py::test_a_flood_reaches_no_server_and_is_told_so",
    ),
    Break(
        "a guest that asks for what it is refused is never ended",
        "ADR 59: what a guest does not pay for with time has a bound",
        "controller_host",
        "Calls.call",
        "if self._refusals > MOST_REFUSALS:",
        "if self._refusals < 0:",
        "tests/unit/controller_host/test_calling.py::test_who_goes_on_asking_for_what_is_refused_is_ended",
    ),
    Break(
        "what the host does counts as the guest's processor time",
        "ADR 59: what the host does for a guest is not the guest's",
        "controller_host",
        "Budget.cpu_seconds",
        "time.thread_time() - self._cpu - self._host_cpu",
        "time.thread_time() - self._cpu",
        "tests/unit/controller_host/guest/test_calls.py::test_the_processor_time_of_the_host_is_not_the_guests",
    ),
    Break(
        "a pinned controller is put to disk",
        "ADR 67: who is pinned or in work stays in memory",
        "controller_host",
        "Residents.surplus",
        "if may_go(key):",
        "if may_go(key) or not going(key):",
        "tests/unit/controller_host/test_residents.py::test_who_may_not_go_stays",
    ),
    Break(
        "one namespace holds all places",
        "ADR 58: nobody waits for another's module",
        "controller_host",
        "Places._may",
        "self._held.get(owner, 0) < self._free",
        "self._free > 0",
        "tests/unit/controller_host/test_turns.py::test_an_owner_holds_no_more_places_than_are_free_beside",
    ),
)

SNAPSHOTS: Final = (
    Break(
        "a snapshot of another module or configuration is woken",
        "ADR 54: a snapshot is found only by what it was made for",
        "controller_host",
        "Snapshots.find",
        "if header.identity != identity.digest():",
        "if not header.identity:",
        "tests/unit/controller_host/guest/test_snapshots.py::test_a_snapshot_of_another_is_not_found_by_its",
    ),
    Break(
        "a snapshot of a run that was killed is trusted",
        "ADR 54: a snapshot is trusted by the run that wrote it",
        "controller_host",
        "Snapshots._trusted",
        "header.boot == self.boot and header.run == self.run",
        "header.boot == self.boot",
        "tests/unit/controller_host/guest/test_snapshots.py::"
        "test_what_a_run_wrote_that_ended_cleanly_is_trusted_and_else_read",
    ),
    Break(
        "pages of two generations pass as one snapshot",
        "ADR 54: what does not pass is no snapshot",
        "controller_host",
        "intact",
        "if xxhash.xxh3_128_digest(checksums) != header.pages_checksum:",
        "if not header.pages_checksum:",
        "tests/unit/controller_host/guest/test_snapshots.py::test_pages_of_two_generations_never_pass_as_one",
    ),
    Break(
        "what was done counts although the snapshot is lost",
        "ADR 57: whatever is lost costs calls that repeat, never one that is missing",
        "controller_host",
        "Progress.lose",
        "(NEVER, uid)",
        '("", uid)',
        "tests/unit/controller_host/test_progress.py::test_what_is_lost_is_not_done_and_its_keys_stay",
    ),
    Break(
        "files go before all controllers are known",
        "architecture: nothing is destroyed on silence",
        "controller_host",
        "living_of",
        "if not set(uids) <= {one.view.uid for one in hosted}:",
        "if not uids:",
        "tests/unit/controller_host/test_sweeping.py::"
        "test_nothing_goes_before_all_have_said_what_they_want_and_nothing_is_done_twice",
    ),
    Break(
        "who shows no right gets what another fetched for good",
        "ADR 56: a module is its namespace's to fetch",
        "controller_host",
        "Progress.has_shown",
        "return bool(anybody)",
        "return bool(own or not anybody)",
        "tests/unit/controller_host/test_progress.py::test_a_right_that_was_shown_is_known_as_long_as_somebody_has_it",
    ),
)
