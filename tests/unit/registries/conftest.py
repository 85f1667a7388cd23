"""Certificates of the servers that are asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.node_installer.servers import certificates


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("pki") / "tls")
