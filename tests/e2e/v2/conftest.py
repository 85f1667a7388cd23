"""Fixtures of tests with a real wasmCloud v2 runtime: the host, NATS, and a registry with the recorded images."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.releases.registry import registry
from support.v2.component_images import RECORDED, push
from support.v2.real_host import Images, StartHost
from trellis_dev.localcluster import v2host
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.v2host import V2Host


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(2700))  # the first one builds


@pytest.fixture(scope="session")
def program() -> Path:
    """The host, built if it is not in the cache."""
    if (reason := v2host.missing()) is not None:
        pytest.skip(f"NOT RUN: {reason}")
    return v2host.v2_host(How(Lines(), threading.Event()))


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """The recorded images in a registry."""
    with registry(tmp_path_factory.mktemp("registry")) as address:
        yield Images(address, {name: push(address, name, content.data) for name, content in RECORDED.items()})


@pytest.fixture(scope="session")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A nats-server for the hosts of this process."""
    with NatsServer(tmp_path_factory.mktemp("nats") / "server") as server:
        yield server


@pytest.fixture
def start_host(program: Path, tmp_path: Path) -> Iterator[StartHost]:
    """Start hosts, which end with the test."""
    numbers = itertools.count()
    with ExitStack() as stack:
        yield lambda options: stack.enter_context(V2Host(program, tmp_path / f"host-{next(numbers)}", options))
