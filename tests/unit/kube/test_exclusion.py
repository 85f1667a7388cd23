"""The judges of the leadership experiments catch what they are for: each violation is forged once."""

from __future__ import annotations

from typing import Any

import pytest

from support.cluster.exclusion import Fate, Lease, Run, late_writes, overlaps, runs_of
from support.suite.naming import lacking

LEASE = Lease("ns", "trellis-keeper")


def record(who: str, what: str = "configmaps/k0", code: int = 200, product: str = "trellis-keeper") -> dict[str, Any]:
    resource, _, name = what.partition("/")
    return {
        "verb": "patch",
        "userAgent": f"{product}/0.1.0 ({who})" if who else "kube-controller-manager/v1",
        "objectRef": {"resource": resource, "namespace": "ns", "name": name},
        "responseStatus": {"code": code},
        "stageTimestamp": "2026-01-01T00:00:00.000000Z",
    }


def lead(who: str, code: int = 200) -> dict[str, Any]:
    return record(who, "leases/trellis-keeper", code)


HANDED_OVER = [lead("a"), record("a"), lead("a"), lead("b"), record("b")]


@pytest.mark.parametrize(
    "after",
    [
        [record("a", code=409)],
        [record("b"), lead("b")],
        [record("a", "configmaps/k1")],
        [lead("a"), record("a"), lead("b"), record("b")],
        [record("", code=200)],
        [record("a", product="trellis-other")],
        [lead("a", code=409), record("b")],
        [record("c", "namespaces/x", code=201)],
    ],
    ids=[
        "a write that is refused",
        "the leader goes on",
        "an object the successor has not written yet",
        "the former leader leads again",
        "somebody else writes",
        "another service writes",
        "a candidate does not get the lease",
        "a follower sees to its namespace",
    ],
)
def test_permitted_writes_are_no_violation(after: list[dict[str, Any]]) -> None:
    assert late_writes([*HANDED_OVER, *after], LEASE) == []


@pytest.mark.parametrize(
    ("after", "names"),
    [
        ([record("a")], ["a", "patch configmaps/ns/k0", "b"]),
        ([record("a", code=201)], ["a", "b"]),
        ([lead("a", code=409), record("a")], ["a", "b"]),
        ([record("c")], ["c"]),
        ([lead("c"), record("c", "configmaps/k1"), record("b", "configmaps/k1")], ["b", "c"]),
    ],
    ids=[
        "the former leader writes over its successor",
        "it makes the object anew",
        "it did not get the lease back",
        "a follower writes",
        "the second of three leaders",
    ],
)
def test_a_forged_violation_is_caught(after: list[dict[str, Any]], names: list[str]) -> None:
    [found] = late_writes([*HANDED_OVER, *after], LEASE)
    assert lacking(found, *names) == []


def test_intervals_that_touch_are_fine_and_ones_that_overlap_are_not() -> None:
    first = Run("a", "k0", 1.0, 2.0)
    assert overlaps([first, Run("b", "k0", 2.0, 3.0), Run("b", "k1", 1.5, 1.6)], {}) == []
    [found] = overlaps([first, Run("b", "k0", 1.999, 3.0)], {})
    assert lacking(found, "k0", "b", "1.999", "a", "2.000") == []
    inside = [Run("a", "k0", 1.0, 9.0), Run("a", "k0", 2.0, 3.0), Run("b", "k0", 5.0, 6.0)]
    [found] = overlaps(inside, {})
    assert lacking(found, "k0", "b", "5.000", "a", "9.000") == [], "also behind a shorter one"


def test_a_killed_replica_s_run_ends_with_it_and_any_other_run_must_end() -> None:
    runs = [Run("a", "k0", 1.0), Run("b", "k0", 5.0, 6.0)]
    assert overlaps(runs, {"a": Fate(killed=4.0)}) == []
    [found] = overlaps(runs, {"a": Fate(killed=5.5)})
    assert lacking(found, "k0", "b", "5.000", "a", "5.500") == []
    [found] = overlaps(runs, {})
    assert lacking(found, "k0", "a", "1.000") == []


def test_a_stopped_replica_may_end_its_run_late_but_do_nothing_in_it() -> None:
    fates = {"a": Fate(stopped=(2.0, 32.0))}
    successor = Run("b", "k0", 12.0, 13.0)
    assert overlaps([Run("a", "k0", 1.0, 32.1, [1.5]), successor], fates) == []
    [found] = overlaps([Run("a", "k0", 1.0, 32.1, [32.05]), successor], fates)
    assert lacking(found, "k0", "a", "32.050", "2.000") == []
    [found] = overlaps([Run("a", "k0", 1.0, 32.1), Run("b", "k0", 1.9, 3.0)], fates)
    assert lacking(found, "k0", "b", "1.900", "a", "2.000") == []
    assert len(overlaps([Run("a", "k0", 33.0, 34.0), Run("b", "k0", 33.5, 35.0)], fates)) == 1, "long after it went on"


def test_a_journal_is_read_as_runs() -> None:
    lines = [("a", "began", 1.0), ("b", "began", 1.1), ("a", "wrote", 1.2), ("a", "ended", 1.3), ("a", "began", 1.4)]
    assert runs_of({"replica": who, "what": what, "key": "k0", "at": at} for who, what, at in lines) == [
        Run("a", "k0", 1.0, 1.3, [1.2]),
        Run("b", "k0", 1.1),
        Run("a", "k0", 1.4),
    ]


TAKEN_AWAY = [lead("a"), record("a"), record("", "leases/trellis-keeper"), lead("b"), record("b")]


def test_a_holder_does_not_notice_a_stolen_lease_until_it_checks() -> None:
    assert late_writes([*TAKEN_AWAY, record("a"), record("b"), record("a")], LEASE) == []


@pytest.mark.parametrize("code", [200, 409], ids=["and had it", "and was refused"])
def test_a_holder_that_checked_a_stolen_lease_knows(code: int) -> None:
    other = [] if code != 200 else [lead("b"), record("b")]
    [found] = late_writes([*TAKEN_AWAY, lead("a", code), *other, record("a")], LEASE)
    assert lacking(found, "a", "b") == []
