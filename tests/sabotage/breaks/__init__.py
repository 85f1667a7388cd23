"""The breaks: one line each, with the promise that it breaks and the test that catches it."""

from __future__ import annotations

from typing import Final

from sabotage.breaking import Break

BREAKS: Final = (
    Break(
        "a slot is free although it is taken",
        "a rollout changes at most maxUnavailable nodes at once",
        "provisioner",
        "Slots._free",
        "self._used[name] <",
        "self._used[name] - 1 <",
        "tests/unit/provisioner/test_rollout_model.py",
    ),
)
