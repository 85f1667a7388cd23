"""Fixtures every test may use; the parts live in tests/support."""

from __future__ import annotations

pytest_plugins = ["support.cluster", "support.fleet", "support.golden"]
