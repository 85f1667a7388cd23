"""Patterns people type: relative to a cluster or absolute, and refused where they can match nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.events.node import NodeOptedOut
from trellis.events.subjects import (
    PatternError,
    PatternFault,
    event_subject,
    events_filter,
    is_event_subject,
    pattern_filter,
    plain,
)


@pytest.mark.parametrize(
    ("pattern", "cluster", "found"),
    [
        ("node.>", "c", "trellis.evt.c.node.>"),
        ("node.>", None, "trellis.evt.*.node.>"),
        (">", "c.d", "trellis.evt.c=2Ed.>"),
        ("*.failed.n1", "c", "trellis.evt.c.*.failed.n1"),
        ("trellis.evt.>", "c", "trellis.evt.>"),
        ("trellis.evt.*.node.*.n=2E1", None, "trellis.evt.*.node.*.n=2E1"),
    ],
)
def test_a_pattern_is_relative_unless_it_has_the_prefix_of_trellis(
    pattern: str, cluster: str | None, found: str
) -> None:
    assert pattern_filter(pattern, cluster) == found


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("", PatternFault.TOKENS),
        ("node..x", PatternFault.TOKENS),
        ("node.gone.", PatternFault.TOKENS),
        ("node gone.x.y", PatternFault.TOKENS),
        ("node.\x1b.x", PatternFault.TOKENS),
        ("node.>.x", PatternFault.REST_NOT_LAST),
        ("node.opt*.x", PatternFault.WILDCARD),
        ("node.gone.n>", PatternFault.WILDCARD),
        ("node", PatternFault.TOO_SHORT),
        ("node.*", PatternFault.TOO_SHORT),
        ("trellis.evt.c.node.gone", PatternFault.TOO_SHORT),
        ("trellis.>", PatternFault.ROOT),
        ("trellis.dead.>", PatternFault.ROOT),
        ("trellis.evtx.a.b.c.d", PatternFault.ROOT),
    ],
)
def test_an_invalid_pattern_is_reported_with_the_expected_form(pattern: str, fault: PatternFault) -> None:
    with pytest.raises(PatternError) as refused:
        pattern_filter(pattern, "c")
    assert refused.value.fault is fault


def test_without_a_noun_everything_below_the_cluster_is_meant() -> None:
    assert events_filter(None) == "trellis.evt.>"
    assert events_filter("c.d") == "trellis.evt.c=2Ed.>"
    assert events_filter(None, "node") == "trellis.evt.*.node.>"


@given(st.text(), st.text(min_size=1))
def test_every_event_can_be_published(cluster: str, name: str) -> None:
    assert is_event_subject(event_subject(cluster, NodeOptedOut(name=name, uid="u", resource_version="1")))


@pytest.mark.parametrize(
    "subject",
    ["", "x", "trellis.evt.c.node.gone", "trellis.evt.c.node.gone.*", "trellis.evt.c.node.>.x", "trellis.dead.c.s.n.k",
     "trellis.evt.c.node.gone.é", "trellis.evt.c.node.gone.a b", "trellis.evt.c..gone.x", "trellis.evt.c.node.gone.x\n",
     "xtrellis.evt.c.node.gone.x", "$JS.API.STREAM.PURGE.TRELLIS_EVENTS"],
)  # fmt: skip
def test_nothing_else_can(subject: str) -> None:
    assert not is_event_subject(subject)


@given(st.text())
def test_any_token_has_a_plain_form(token: str) -> None:
    assert isinstance(plain(token), str)
