"""The patterns of containerd's imports, matched as containerd does.

Pure: a pattern and a name in. Called by ``disk`` (which files), ``gather`` and ``target`` (which name of Trellis).
Source: Go's ``path/filepath.Match``, by which containerd finds its imports: ``*`` and ``?`` match no slash, a class is
negated by ``^`` (not by ``!``), a backslash quotes. A malformed pattern matches nothing.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_META: Final = frozenset("*?[\\")
_CHARACTER: Final = r"(?:\\.|[^-\]\\])"
"""A character of a class; a dash, a bracket and a backslash only after a backslash."""
_TOKEN = re.compile(
    rf"\*|\?|\[(?P<not>\^?)(?P<class>(?:{_CHARACTER}(?:-{_CHARACTER})?)+)\]|\\(?P<quoted>.)|(?P<plain>[^*?\[\\])",
    re.DOTALL,
)


def has_meta(pattern: str) -> bool:
    """Return whether a pattern has special characters."""
    return not _META.isdisjoint(pattern)


def matches(pattern: str, name: str) -> bool:
    """Return whether one name (no slash in it) matches one part of a pattern."""
    expression = _expression(pattern)
    return expression is not None and expression.fullmatch(name) is not None


@cache
def _expression(pattern: str) -> re.Pattern[str] | None:
    # The part between two stars may match at its first position, without backtracking: atomic groups. Otherwise the
    # duration for a pattern of many stars grows with a power of the name's length.
    parts: list[str] = [""]
    position = 0
    while position < len(pattern):
        found = _TOKEN.match(pattern, position)
        if found is None:
            return None
        if found[0] == "*":
            parts.append("")
        else:
            parts[-1] += _translated(found)
        position = found.end()
    first, *between = parts
    last = f"[^/]*{between.pop()}" if between else ""
    try:
        return re.compile(first + "".join(f"(?>[^/]*?{part})" for part in between) + last, re.DOTALL)
    except re.error:  # a range that runs backwards
        return None


def _translated(found: re.Match[str]) -> str:
    if found["class"] is not None:
        return f"[{found['not']}{_class(found['class'])}]"
    if found["quoted"] is not None:
        return re.escape(found["quoted"])
    return "[^/]" if found[0] == "?" else re.escape(found[0])


def _class(text: str) -> str:
    """Return a class's content with escapes for Python; a dash between two characters is a range."""
    return re.sub(r"\\(.)|([^\w-])", lambda found: re.escape(found[1] or found[2]), text, flags=re.DOTALL)
