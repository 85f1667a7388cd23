from __future__ import annotations

import re
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.events.envelope import EventData
from trellis.events.node import NodeOptedOut
from trellis.events.subjects import (
    EVENT_SPECS,
    STREAM_EVENTS,
    STREAM_SUBJECTS,
    EventSpec,
    copies_filter,
    copy_subject,
    dead_subject,
    escape,
    event_filter,
    event_subject,
    is_event_subject,
    spec_of,
    spec_of_type,
    unescape,
)

TOKEN = re.compile(r"[A-Za-z0-9_=-]+")


def matches(subject: str, pattern: str) -> bool:
    """NATS' own rule: ``*`` is one token, ``>`` is one or more at the end."""
    tokens, wanted = subject.split("."), pattern.split(".")
    if wanted[-1] == ">":
        return len(tokens) >= len(wanted) and all(w in {"*", t} for t, w in zip(tokens, wanted[:-1], strict=False))
    return len(tokens) == len(wanted) and all(w in {"*", t} for t, w in zip(tokens, wanted, strict=True))


@given(st.text())
def test_escaping_has_an_inverse_and_makes_one_token(name: str) -> None:
    token = escape(name)
    assert unescape(token) == name
    assert TOKEN.fullmatch(token)


@given(st.text(), st.text())
def test_different_names_have_different_tokens(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)


@given(st.text(alphabet="=0123456789ABCDEFabcdef.-_xyz*>"))
def test_only_output_of_escape_is_unescaped(token: str) -> None:
    try:
        name = unescape(token)
    except ValueError:
        return
    assert escape(name) == token


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("ip-10-0-0-1.ec2.internal", "ip-10-0-0-1=2Eec2=2Einternal"),
        ("", "="),
        ("*", "=2A"),
        ("a b", "a=20b"),
        ("=", "=3D"),
    ],
)
def test_names_are_escaped_as_documented(name: str, token: str) -> None:
    assert escape(name) == token


@pytest.mark.parametrize("token", ["a.b", "=2e", "=41", "=G0", "=2", "a*", "=FF"])
def test_a_token_that_escape_does_not_make_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match=r"escaped|decode"):
        unescape(token)


def concrete(base: type[EventData]) -> set[type[EventData]]:
    """All models of events there are: the classes that name one."""
    found = {base} if "event_name" in vars(base) and base.__module__.startswith("trellis.") else set()
    return found.union(*(concrete(child) for child in base.__subclasses__()))


def test_every_model_of_an_event_is_in_the_table_once() -> None:
    assert sorted(spec.model.__name__ for spec in EVENT_SPECS) == sorted(
        model.__name__ for model in concrete(EventData)
    )


@pytest.mark.parametrize("spec", EVENT_SPECS, ids=lambda spec: spec.type)
def test_each_row_is_found_by_model_and_by_type(spec: EventSpec) -> None:
    assert spec_of(spec.model) is spec
    assert spec_of_type(spec.type) is spec
    assert re.fullmatch(r"dev\.trellis\.[a-z_]+\.[a-z_]+\.v[1-9][0-9]*", spec.type)


def test_no_two_rows_share_type_or_subject() -> None:
    assert len({spec.type for spec in EVENT_SPECS}) == len(EVENT_SPECS)
    assert len({spec.tokens for spec in EVENT_SPECS}) == len(EVENT_SPECS)


class NodeOptedOutAgain(NodeOptedOut):
    version: ClassVar[int] = 2


def test_a_second_version_has_subjects_of_its_own_that_readers_of_the_first_do_not_receive() -> None:
    spec = EventSpec(NodeOptedOutAgain, "node_watcher")
    assert (spec.type, spec.tokens) == ("dev.trellis.node.opted_out.v2", "node.opted_out-v2")
    assert not matches(f"trellis.evt.c1.{spec.tokens}.n1", event_filter("c1", NodeOptedOut))


@given(cluster=st.text(), name=st.text(min_size=1, max_size=253))
def test_the_subject_of_an_event_is_caught_by_its_filter_and_its_stream_and_no_other(cluster: str, name: str) -> None:
    subject = event_subject(cluster, NodeOptedOut(name=name, uid="u", resource_version="1"))
    caught = [spec.model for spec in EVENT_SPECS if matches(subject, event_filter(cluster, spec.model))]
    assert caught == [NodeOptedOut]
    assert [stream for stream, pattern in STREAM_SUBJECTS.items() if matches(subject, pattern)] == [STREAM_EVENTS]
    assert unescape(subject.split(".")[-1]) == name


def test_an_unknown_type_has_no_row() -> None:
    assert spec_of_type("dev.trellis.node.exploded.v1") is None


def test_a_dead_letter_about_nothing_still_has_a_key() -> None:
    assert dead_subject("c1", "provisioner", "node", ()) == "trellis.dead.c1.provisioner.node.="
    assert dead_subject("c.1", "provisioner", "node", ("a.b",)) == "trellis.dead.c=2E1.provisioner.node.a=2Eb"


@given(st.text(), st.text(), st.text())
def test_a_copy_is_found_by_its_cluster_and_lattice_and_by_nothing_else(cluster: str, lattice: str, event: str) -> None:
    subject = copy_subject(cluster, lattice, event)
    assert is_event_subject(subject)
    for pattern in (copies_filter(cluster, lattice), copies_filter(cluster), copies_filter(None, lattice)):
        assert matches(subject, pattern)
    assert not matches(subject, copies_filter(f"{cluster}x", lattice))
    assert not matches(subject, copies_filter(cluster, f"{lattice}x"))
    assert not matches(subject, "trellis.evt.>")
