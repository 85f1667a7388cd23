"""What holds of every test that has real servers."""

from __future__ import annotations

pytest_plugins = ["support.leaks"]
