"""A pytest plugin: a test that leaves a process, a socket, a namespace or a stream behind fails by its own name.

Looked at when all of a test's fixtures have ended. What fixtures of a larger scope start is theirs: it ends with them.
Unclosed sockets are found by collecting garbage here, where the warning fails this test and not a later one; modules
and what they made at their import are left out of it, so that it takes some milliseconds. Namespaces are listed once
for each test; one that is being deleted counts as deleted.
"""

from __future__ import annotations

import contextlib
import gc
import http
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from support.suite.suite_accounts import PLACES
from trellis.kube.resources import NAMESPACES
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

_CLUSTER: Final = "cluster"
_NATS: Final = "nats_server"
_KEPT: Final = ("support.suite.typed_process", "/trellis/clusters/")
"""What forks commands is started by the first test that needs it and ends with the run; servers of a control plane end
with the process that has it, and a test may restart them in another way."""
_SHARED: Final = ("TRELLIS_", "KV_wadm_")
"""Streams and buckets of the bus and of wadm stay: all services of a server have the same."""


class Left:
    """The resources that exist besides those of fixtures of larger scopes.

    Processes of this one, streams of its server, namespaces of its control plane.
    """

    def __init__(self) -> None:
        self.shared: set[object] = set()
        self.server: NatsServer | None = None
        self._kubeconfig: Path | None = None
        self._api: Api | None = None

    def found(self) -> set[object]:
        """Return what there is now, without what is shared."""
        return (_processes() | self._streams() | self._namespaces()) - self.shared

    def begin(self) -> None:
        """Take processes and streams for shared: a fixture of the whole session may have just started them."""
        self.shared |= _processes() | self._streams()

    def watch(self, cluster: ClusterInfo) -> None:
        """Look at the namespaces of a control plane from now on; those that it has are shared."""
        if cluster.kubeconfig != self._kubeconfig:
            self.close()
            self._kubeconfig = cluster.kubeconfig
            self._api = Api.of_kubeconfig(cluster.kubeconfig)
            self.shared |= self._namespaces()

    def close(self) -> None:
        """Close the connection to the control plane."""
        if self._api is not None:
            self._api.close()

    def _namespaces(self) -> set[object]:
        if self._api is None:
            return set()
        with contextlib.suppress(OSError):  # a control plane of one module ends with it
            status, found = self._api.call("GET", NAMESPACES.path())
            if status == http.HTTPStatus.OK:
                items = [item["metadata"] for item in found["items"]]
                # The accounts of the services are in PLACES, from the first service of a run on.
                here = {item["name"] for item in items if "deletionTimestamp" not in item} - {*PLACES}
                return {f"namespace {name}" for name in here}
        return set()

    def _streams(self) -> set[object]:
        # A deleted stream's folder is renamed to .NAME and removed after the server has answered.
        found = self.server.store.glob("jetstream/*/streams/[!.]*") if self.server is not None else ()
        return {f"stream {item.name}" for item in found if not any(part in item.name for part in _SHARED)}


def _processes() -> set[object]:
    """Return command lines: a server of larger scope that a test has restarted has the same."""
    found: set[object] = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                found.add(" ".join(child.cmdline()))
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
def heap() -> Iterator[None]:
    """Leave what is imported out of later collections."""
    gc.collect()
    gc.freeze()
    yield
    _left.close()


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Look at what a test leaves when all of its fixtures have ended."""
    if _NATS in request.fixturenames:
        _left.server = request.getfixturevalue(_NATS)
    if _CLUSTER in request.fixturenames:
        _left.watch(request.getfixturevalue(_CLUSTER))
    _left.begin()
    yield
    gc.collect()
    gc.freeze()
    left = _left.found()
    _left.shared |= left
    assert not left, f"left behind: {sorted(map(str, left))}"
