"""Rules of every test that has real servers: it leaves nothing behind."""

from __future__ import annotations

from support.suite.leaks import heap, leaves_nothing, pytest_fixture_setup

__all__ = ["heap", "leaves_nothing", "pytest_fixture_setup"]
