"""Fixtures of all tests of the installer."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of installations: what fsync is for, a power failure, does not happen here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
