"""One engine for all tests of guests: compiled modules lie in a directory of the session."""

from __future__ import annotations

import pytest

from controller_host.guest.modules import Modules


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Modules:
    return Modules(tmp_path_factory.mktemp("guests") / "modules")
