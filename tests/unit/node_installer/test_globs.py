"""Patterns of many stars: what is between two of them is looked for once, where it first is."""

from __future__ import annotations

import pytest

from fuzz.limits import bounded
from node_installer.containerd import globs


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*a" * 44, "a" * 255, True),
        ("*a" * 44, "a" * 255 + "b", False),
        ("*a*ab", "aaab", True),
        ("*ab*ab", "ab", False),
        ("a*", "a", True),
        ("*", "", True),
        ("*/x", "a/x", True),
        ("*a*", "b/a", False),
        ("**", "abc", True),
        ("*[a-c]?*\\*", "xxbz*", True),
        ("a", "ab", False),
        ("[a-]", "a", False),
        ("[-a]", "-", False),
        ("[a-c-e]", "b", False),
        ("[a\\-]", "-", True),
        ("[^a]", "b", True),
        ("[]a]", "a", False),
    ],
)
def test_a_pattern_matches_as_gos_does_and_soon(pattern: str, name: str, matches: bool) -> None:
    with bounded(2, 64):
        assert globs.matches(pattern, name) is matches
