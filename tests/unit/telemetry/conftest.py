"""No setting of the developer's environment reaches a test of telemetry."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("OTEL_") or name in {"NO_COLOR", "TERM"}:
            monkeypatch.delenv(name)
