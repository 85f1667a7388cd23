"""Subjects of a lattice, and the names that cannot stand in them."""

from __future__ import annotations

import re

import pytest

from support.lattices.lattice_recordings import everything, messages
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.domain.subjects import (
    SubjectError,
    copied_event,
    event_of,
    event_subject,
    host_get_subject,
    host_ping_subject,
    model_list_subject,
    wadm_events_subject,
)


def test_subjects_are_those_of_the_protocols() -> None:
    assert event_subject("default", "host_heartbeat") == messages("host_heartbeat")[0]["subject"]
    assert model_list_subject("default") == "wadm.api.default.model.list"
    assert wadm_events_subject("default") == "wadm.evt.default.>"
    assert host_ping_subject("default") == "wasmbus.ctl.v1.default.host.ping"
    assert host_get_subject("default", "N1", "my.ctl") == "my.ctl.v1.default.host.get.N1"


@pytest.mark.parametrize(
    ("subject", "event"),
    [
        ("wasmbus.evt.default.host_heartbeat", "host_heartbeat"),
        ("account1.wasmbus.evt.default.host_stopped", "host_stopped"),
        ("wasmbus.evt.default", None),
        ("wasmbus.evt.default.a.b", None),
        ("wadm.evt.default.manifest_published", None),
        ("", None),
    ],
)
def test_an_event_is_known_by_its_subject(subject: str, event: str | None) -> None:
    assert event_of(subject) == event


@pytest.mark.parametrize("name", ["", "a.b", "*", ">", "a b", "a\tb", "a\nb", "a\r\nPUB x 0", "\x00", "a*b"])
def test_a_name_that_is_no_token_is_refused_before_anything_is_asked(name: str) -> None:
    with pytest.raises(SubjectError, match="lattice"):
        LatticeAddress(NatsAddress("nats://127.0.0.1"), name)
    with pytest.raises(SubjectError, match="host"):
        host_get_subject("default", name)


@pytest.mark.parametrize("prefix", ["", ".", "a..b", "a.>", "a b", ".a"])
def test_a_control_prefix_that_is_no_subject_is_refused(prefix: str) -> None:
    with pytest.raises(SubjectError, match=re.escape(repr(prefix))):
        LatticeAddress(NatsAddress("nats://127.0.0.1"), "default", prefix)


@pytest.mark.parametrize(
    ("subject", "event"),
    [
        ("wadm.evt.default.manifest_published", "manifest_published"),
        ("wasmbus.evt.default.provider_stopped", "provider_stopped"),
        ("wasmbus.evt.default.host_stopped", "host_stopped"),
        ("wasmbus.evt.default.linkdef_set", "linkdef_set"),
        ("wasmbus.evt.default.host_heartbeat", None),
        ("wasmbus.evt.default.config_set", None),
        ("wasmbus.evt.default.component_scaled.more", None),
        ("wasmbus.ctl.default.component_scaled", None),
        ("other.evt.default.manifest_published", None),
        ("", None),
    ],
)
def test_only_events_without_secrets_and_not_every_second_are_forwarded(subject: str, event: str | None) -> None:
    assert copied_event(subject) == event


def test_every_recorded_event_is_copied_or_known_not_to_be() -> None:
    kinds = {m["subject"].split(".")[-1]: m["subject"] for m in everything() if ".evt." in m["subject"]}
    left_out = {kind for kind, subject in kinds.items() if copied_event(subject) is None}
    assert left_out <= {"host_heartbeat", "config_set", "config_deleted"}
