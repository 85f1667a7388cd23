"""An environment without any setting."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TRELLIS_", "OTEL_")) or name == "KUBECONFIG":
            monkeypatch.delenv(name)
