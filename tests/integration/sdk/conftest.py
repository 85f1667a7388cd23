"""The example controllers in each language, awake and asleep, on the runtime that the service has."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller_host.guest import imports
from controller_host.guest.modules import Modules
from support.guests import built as guests
from support.guests.guest_api import FakeApi
from support.guests.guest_host import GuestHost
from support.guests.sdk_worlds import Boot, Clock, Start, World


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Modules:
    return Modules(tmp_path_factory.mktemp("modules") / "compiled")


@pytest.fixture(scope="module", params=guests.LANGUAGE_PARAMETERS)
def language(request: pytest.FixtureRequest) -> str:
    guests.needed(request.param)
    return str(request.param)


@pytest.fixture(params=["awake", "suspended after every call"])
def boot(
    request: pytest.FixtureRequest, language: str, modules: Modules, tmp_path: Path
) -> Iterator[Callable[[str], Boot]]:
    """Makes instances of the example that is named."""
    with contextlib.ExitStack() as ended:

        def instance(name: str, api: FakeApi) -> GuestHost:
            module = modules.load(guests.example(language, name).read_bytes())
            directory = None if request.param == "awake" else Path(tempfile.mkdtemp(dir=tmp_path)) / "snapshots"
            host = GuestHost(module, api, directory)
            ended.callback(host.close)
            return host

        yield lambda name: lambda api: instance(name, api)


@pytest.fixture
def start(boot: Callable[[str], Boot], monkeypatch: pytest.MonkeyPatch) -> Start:
    clock = Clock()
    monkeypatch.setattr(imports, "time", clock)
    return lambda name, **config: World(boot(name), config, clock)
