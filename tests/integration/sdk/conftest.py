"""Modules compiled once for all tests of the SDKs."""

from __future__ import annotations

import pytest

from controller_host.guest.modules import Modules


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Modules:
    return Modules(tmp_path_factory.mktemp("modules") / "compiled")
