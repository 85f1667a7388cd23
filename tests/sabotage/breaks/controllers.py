"""Breaks of controller_host: what a controller sees, where its module comes from, what it may cost, its snapshots."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

CONFINEMENT: Final = (
    Break(
        "the result of an access review is cached permanently",
        "ADR 56: a revoked permission remains in effect for at most 60 s",
        "controller_host",
        "Reviews.allowed",
        "found is not None and self._clock() - found[1] < self._timings.keep",
        "found is not None",
        "tests/unit/controller_host/test_reviews.py::test_a_review_is_cached_for_its_ttl_and_then_repeated",
    ),
    Break(
        "an account that may only list receives changes",
        "ADR 56: a controller sees objects that its account may list and watch",
        "controller_host",
        "Reviews._review",
        "for verb in _VERBS:",
        "for verb in _VERBS[:1]:",
        "tests/unit/controller_host/test_reviews.py::test_a_subject_with_only_list_permission_may_not_watch",
    ),
    Break(
        "a controller receives objects that no rule allows its account",
        "ADR 56: a controller sees only objects that its account may see",
        "controller_host",
        "Reviews._ask",
        'bool(status.get("allowed")) and not status.get("denied")',
        'bool(status.get("allowed")) or not status.get("denied")',
        "tests/unit/controller_host/test_reviews.py::test_places_and_resources_are_asked_about_apart",
    ),
    Break(
        "an IPv4 address embedded in an IPv6 address is not checked",
        "security: no module source leads into private networks",
        "trellis",
        "_meant",
        "address.sixtofour or",
        "",
        "tests/unit/registries/test_addresses.py::test_an_address_that_only_this_machine_reaches_is_forbidden",
    ),
    Break(
        "credentials of a registry follow a redirect",
        "security: credentials are sent only to their own host",
        "trellis",
        "Web.get",
        "if target.origin() != place.origin():",
        "if target.scheme != place.scheme:",
        "tests/unit/controller_host/sources/test_private_registries.py::"
        "test_credentials_do_not_follow_a_redirect_to_another_host",
    ),
    Break(
        "the path of a module may be absolute",
        "security: a module is below the directory of modules",
        "controller_host",
        "_parts",
        'if path.startswith("/") or "\\0" in path:',
        'if "\\0" in path:',
        "tests/unit/controller_host/test_files.py::test_links_and_paths_that_lead_out_are_refused",
    ),
)

COSTS: Final = (
    Break(
        "each controller may pin as much memory as its whole namespace",
        "ADR 59: the resources of a controller have a bound",
        "controller_host",
        "Acceptance.claim",
        "if in_use + size <= self.most.pinned_bytes:",
        "if size <= self.most.pinned_bytes:",
        "tests/unit/controller_host/test_maximum_limits.py::"
        "test_a_namespace_pins_no_more_than_its_share_and_another_has_its_own",
    ),
    Break(
        "a request flood of a guest reaches the API server",
        "ADR 59: no more requests than the limit reach a server",
        "controller_host",
        "Calls._answer",
        "if not self._bucket.take(now):",
        "if not self._bucket.rate:",
        "tests/unit/controller_host/test_calling.py::test_a_flood_of_requests_is_refused_locally_and_reported",
    ),
    Break(
        "a guest that repeats refused requests is never ended",
        "ADR 59: refused requests of a guest have a bound",
        "controller_host",
        "Calls.call",
        "if self._refusals > MOST_REFUSALS:",
        "if self._refusals < 0:",
        "tests/unit/controller_host/test_calling.py::test_a_guest_that_repeats_refused_requests_is_ended",
    ),
    Break(
        "CPU time of the host counts as CPU time of the guest",
        "ADR 59: CPU time of the host is not CPU time of the guest",
        "controller_host",
        "Budget.cpu_seconds",
        "time.thread_time() - self._cpu - self._host_cpu",
        "time.thread_time() - self._cpu",
        "tests/unit/controller_host/guest/test_calls.py::test_the_processor_time_of_the_host_is_not_the_guests",
    ),
    Break(
        "a pinned controller is suspended",
        "ADR 67: a pinned or running controller stays in memory",
        "controller_host",
        "Residents.surplus",
        "if may_go(key):",
        "if may_go(key) or not going(key):",
        "tests/unit/controller_host/test_residents.py::test_a_pinned_guest_stays",
    ),
    Break(
        "one namespace holds all slots",
        "ADR 58: no namespace waits for the module of another",
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
        "ADR 54: a snapshot belongs to one module and configuration",
        "controller_host",
        "Snapshots.find",
        "if header.identity != identity.digest():",
        "if not header.identity:",
        "tests/unit/controller_host/guest/test_snapshots.py::test_a_snapshot_of_another_is_not_found_by_its",
    ),
    Break(
        "a snapshot of a killed process is trusted",
        "ADR 54: only the process that wrote a snapshot trusts it",
        "controller_host",
        "Snapshots._trusted",
        "header.boot == self.boot and header.run == self.run",
        "header.boot == self.boot",
        "tests/unit/controller_host/guest/test_snapshots.py::"
        "test_a_snapshot_is_trusted_only_if_its_writer_ended_cleanly",
    ),
    Break(
        "pages of two generations pass as one snapshot",
        "ADR 54: a snapshot that fails its verification is discarded",
        "controller_host",
        "intact",
        "if xxhash.xxh3_128_digest(checksums) != header.pages_checksum:",
        "if not header.pages_checksum:",
        "tests/unit/controller_host/guest/test_snapshots.py::test_pages_of_two_generations_never_pass_as_one",
    ),
    Break(
        "processed versions remain valid although the snapshot is lost",
        "ADR 57: a loss repeats calls and omits none",
        "controller_host",
        "Progress.lose",
        "(NEVER, uid)",
        '("", uid)',
        "tests/unit/controller_host/test_progress.py::test_a_lost_snapshot_leaves_keys_without_processed_versions",
    ),
    Break(
        "files are deleted before all controllers are listed",
        "architecture: no deletion because of missing data",
        "controller_host",
        "existing_controllers_of",
        "if not set(uids) <= {item.view.uid for item in hosted}:",
        "if not uids:",
        "tests/unit/controller_host/test_garbage_collection.py::"
        "test_nothing_is_collected_before_all_users_reported_and_nothing_is_done_twice",
    ),
    Break(
        "an account without permission gets the cached module of another namespace",
        "ADR 56: each namespace needs access to its module",
        "controller_host",
        "Progress.has_shown",
        "return bool(shown)",
        "return bool(own or not shown)",
        "tests/unit/controller_host/test_progress.py::test_a_verified_permission_is_known_while_it_has_a_user",
    ),
)
