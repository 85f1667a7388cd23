"""Breaks of the bus: acknowledgements, dead letters, names of clusters, permissions."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

ACKNOWLEDGEMENTS: Final = (
    Break(
        "a message of a deleted stream is acknowledged",
        "ADR 7: nothing is acknowledged to a re-created stream",
        "trellis",
        "Ack.__call__",
        "if self.open:",
        "if not self._done:",
        "tests/unit/bus/test_in_flight.py::test_an_acknowledgement_is_not_sent_to_a_recreated_stream",
    ),
    Break(
        "a run covers messages that arrived after its start",
        "ADR 7: a message is acknowledged only after processing",
        "trellis",
        "KeyedQueue.add",
        "entry = self._owe(key)",
        "entry = self._current.get(key) or self._owe(key)",
        "tests/unit/bus/test_queue.py::test_a_key_added_while_it_runs_runs_again_and_only_then_is_acknowledged",
    ),
    Break(
        "a failed run acknowledges its messages",
        "ADR 7: a message is acknowledged only after processing",
        "trellis",
        "KeyedQueue._failed",
        "self._blamed[key] = entry",
        "self._blamed[key] = _Entry(entry.since)",
        "tests/unit/bus/test_queue.py::test_messages_of_a_failed_run_are_acknowledged_by_the_run_that_succeeds",
    ),
    Break(
        "a run removes its key from the queue although a message added it",
        "ADR 7: a message is acknowledged only after processing",
        "trellis",
        "KeyedQueue.cancel_pending",
        "if entry is None or entry.acks or",
        "if entry is None or",
        "tests/unit/bus/test_queue.py::test_a_run_that_reads_again_cancels_what_was_added_but_no_message_and_no_trace",
    ),
    Break(
        "a run starts after the end of the leadership term",
        "ADR 3: a leadership term ends with all its runs",
        "trellis",
        "KeyedQueue._attempt",
        "if not work.may_begin():",
        "if self._working is None:",
        "tests/unit/bus/test_queue_gate.py::test_a_gate_that_closes_in_the_moment_before_a_run_begins_is_in_time",
    ),
    Break(
        "failing keys precede healthy keys",
        "architecture: a failure does not delay healthy keys",
        "trellis",
        "Lanes.take",
        "self._turn_of_retries or not self._new",
        "self._retries",
        "tests/unit/bus/test_lanes.py::test_the_lanes_take_turns_and_each_is_first_come_first_served",
    ),
    Break(
        "the delay between retries grows without a bound",
        "architecture: a failure is never final",
        "trellis",
        "Backoff.bound",
        "min(self.cap, ",
        "max(self.cap, ",
        "tests/unit/bus/test_backoff.py::test_the_longest_delay_doubles_from_one_second_to_five_minutes",
    ),
)

DEAD_LETTERS: Final = (
    Break(
        "each delivery that the subscriber did not see counts against a message",
        "ADR 7: no dead letter because of many hand-overs",
        "trellis",
        "InFlight.hopeless",
        "dropped + min(unseen, self.crashes)",
        "dropped + unseen",
        "tests/unit/bus/test_in_flight.py::test_deliveries_without_a_local_reader_or_a_crash_never_dead_letter_a_message",
    ),
    Break(
        "a message in progress may be dead-lettered",
        "ADR 7: no dead letter for a message in progress",
        "trellis",
        "InFlight.hopeless",
        "is not None and reference() is not None",
        "is not None and reference() is None",
        "tests/unit/bus/test_in_flight.py::test_a_message_in_flight_is_in_progress_regardless_of_redeliveries",
    ),
    Break(
        "a replay repeats the headers for the server",
        "ADR 16: a replay publishes the original under its own ID",
        "trellis",
        "replayed_headers",
        "if not name.lower().startswith(_SERVERS_HEADERS)",
        "if not name.startswith(_SERVERS_HEADERS)",
        "tests/unit/bus/test_dead_letters.py::test_the_originals_headers_come_back_but_those_for_the_server",
    ),
    Break(
        "a message with a newer version is dead-lettered",
        "ADR 17: a newer version is ignored",
        "trellis",
        "_latest_known",
        "if earlier and version > max(earlier)",
        "if earlier and version < max(earlier)",
        "tests/unit/bus/test_message.py::test_only_a_later_version_of_a_type_that_is_read_is_newer",
    ),
    Break(
        "two versions of an event have one ID",
        "ADR 17: a newer version is published in addition to the former",
        "trellis",
        "message_id",
        "if data.version == 1",
        "if data.version",
        "tests/unit/bus/test_message.py::test_two_versions_of_one_event_are_two_messages",
    ),
)

USERS_OF_THE_BUS: Final = (
    Break(
        "a service may publish events of another service",
        "ADR 12: a service publishes its own events of its own cluster",
        "trellis",
        "service_user",
        "if spec.owner == service",
        "if spec.owner",
        "tests/unit/bus/test_permissions.py::test_an_event_is_published_by_its_owner_in_its_own_cluster_alone",
    ),
    Break(
        "the console reads all clusters",
        "ADR 82: the console reads its own cluster",
        "trellis",
        "console_user",
        "CONSUMER.CREATE.{stream}.*.{subjects}",
        "CONSUMER.CREATE.{stream}.>",
        "tests/unit/bus/test_permissions.py::test_the_console_reads_its_own_cluster_alone_and_writes_nothing",
    ),
    Break(
        "a change of leader is treated as a second cluster",
        "ADR 87: a change of leader is not a second cluster",
        "trellis",
        "OtherReader.look",
        "now - self._since < self.patience",
        "now - self._since < 0",
        "tests/unit/bus/test_other_reader.py::test_a_change_of_leader_is_no_other_cluster",
    ),
    Break(
        "the claim of another cluster to the name is overwritten",
        "ADR 13: a claim with another uid is never overwritten",
        "trellis",
        "Claim.hold",
        "owner is not None and owner != self.uid",
        "owner is None and owner != self.uid",
        "tests/unit/bus/test_cluster_claim.py::test_the_name_that_another_cluster_holds_is_left_alone",
    ),
)
