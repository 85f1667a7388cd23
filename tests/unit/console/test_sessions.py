"""Sessions: they end, they are bounded, and an id contains no data."""

from __future__ import annotations

import pytest

from console.access.identity import Viewer
from console.access.sessions import Sessions
from console.domain.limits import SESSIONS, SESSIONS_EACH
from console.http.refusals import RefusedError
from console.timings import Timings

JANE, JOE = Viewer("token/1", "jane", token="t1"), Viewer("token/2", "joe", token="t2")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_id_finds_its_viewer_and_no_other_does() -> None:
    sessions = Sessions(3600)
    name = sessions.open(JANE)
    found = sessions.find(name)
    assert found is not None
    assert found.viewer is JANE
    for other in ("", name[:-1], name + "x", "x" * 10_000, "\udcff"):
        assert sessions.find(other) is None
    assert name not in repr(vars(sessions))


def test_a_session_ends_when_it_is_old_however_much_it_is_used() -> None:
    clock = Clock()
    sessions = Sessions(3600, clock=clock)
    name = sessions.open(JANE)
    while clock.now < 3600:
        assert sessions.find(name) is not None
        clock.now += Timings().idle / 2
    assert sessions.find(name) is None


def test_an_unused_session_ends() -> None:
    clock = Clock()
    sessions = Sessions(1e6, clock=clock)
    name = sessions.open(JANE)
    clock.now = Timings().idle
    assert sessions.find(name) is None


def test_a_viewers_new_session_evicts_only_their_own_oldest() -> None:
    clock = Clock()
    sessions = Sessions(3600, clock=clock)
    joes = sessions.open(JOE)
    names = []
    for _ in range(SESSIONS_EACH + 1):
        clock.now += 1
        names.append(sessions.open(JANE))
    assert sessions.find(names[0]) is None
    assert all(sessions.find(name) for name in [*names[1:], joes])


def test_a_viewer_beyond_the_limit_is_refused_and_evicts_no_other() -> None:
    sessions = Sessions(3600)
    names = [sessions.open(Viewer(f"token/{number}", f"u{number}")) for number in range(SESSIONS)]
    with pytest.raises(RefusedError) as refused:
        sessions.open(JANE)
    assert refused.value.status == 429
    assert all(sessions.find(name) for name in names)


def test_a_user_with_many_tokens_does_not_lock_out_others() -> None:
    clock = Clock()
    sessions = Sessions(3600, clock=clock)
    hers = sessions.open(JANE)
    names = []
    for number in range(SESSIONS - 1):
        clock.now += 1
        names.append(sessions.open(Viewer(f"token/of-one/{number}", "mallory")))
    his = sessions.open(JOE)
    assert sessions.find(names[0]) is None
    assert all(sessions.find(name) for name in [hers, his, *names[1:]])


def test_all_sessions_of_a_viewer_end_together() -> None:
    sessions = Sessions(3600)
    hers, his = [sessions.open(JANE), sessions.open(JANE)], sessions.open(JOE)
    assert sessions.end_all_of(JANE.key) == 2
    assert not any(sessions.find(name) for name in hers)
    assert sessions.find(his)
