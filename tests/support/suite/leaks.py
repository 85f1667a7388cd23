"""A pytest plugin: a test that leaves a process, a socket or a stream behind fails by its own name.

Looked at when all of a test's fixtures have ended. What fixtures of a larger scope start is theirs: it ends with them.
Sockets that nobody closed are found by collecting garbage here, where the warning fails this test and not a later one;
modules and what they made at their import are left out of it, so that it takes some milliseconds.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

import psutil
import pytest

from trellis.localcluster.nats import NatsServer

_NATS: Final = "nats_server"
_KEPT: Final = ("support.suite.typed_process", "/trellis/clusters/")
"""What forks commands is started by the first test that needs it and ends with the run; servers of a control plane end
with the process that has it, and a test may restart them in another way."""
_SHARED: Final = ("TRELLIS_", "KV_wadm_")
"""Streams and buckets of the bus and of wadm stay: all services of a server have the same."""


class Left:
    """What there is besides what fixtures of larger scopes have: processes of this one, streams of its server."""

    def __init__(self) -> None:
        self.shared: set[object] = set()
        self.server: NatsServer | None = None

    def found(self) -> set[object]:
        """Return what there is now, without what is shared."""
        return (_processes() | self._streams()) - self.shared

    def share(self) -> None:
        """Take all that there is now for shared."""
        self.shared |= self.found()

    def _streams(self) -> set[object]:
        found = self.server.store.glob("jetstream/*/streams/*") if self.server is not None else ()
        return {f"stream {one.name}" for one in found if not any(part in one.name for part in _SHARED)}


def _processes() -> set[object]:
    """Return command lines: a server of larger scope that a test has restarted has the same."""
    found: set[object] = set()
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if one.status() != psutil.STATUS_ZOMBIE:
                found.add(" ".join(one.cmdline()))
    return {line for line in found if not any(part in str(line) for part in _KEPT)}


_left = Left()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
    """Note what a fixture of a larger scope has started."""
    before = _left.found() if fixturedef.scope != "function" else set()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            _left.shared |= _left.found() - before


@pytest.fixture(scope="session", autouse=True)
def heap() -> None:
    """Leave what is imported out of later collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Look at what a test leaves when all of its fixtures have ended."""
    if _NATS in request.fixturenames:
        _left.server = request.getfixturevalue(_NATS)
    _left.share()
    yield
    gc.collect()
    gc.freeze()
    left = sorted(map(str, _left.found()))
    _left.share()
    assert not left, f"left behind: {left}"
