"""Bounds of the parts of a module: a module above a bound is rejected before the part is read.

Used by ``binary`` and ``rewriting``. Source: WebAssembly's JavaScript interface, "Implementation-defined Limits", or
lower where real modules are far below them.
"""

from __future__ import annotations

from typing import Final

MOST_SECTIONS: Final = 1_000  # including custom sections
MOST_TYPES: Final = 10_000
MOST_PARAMETERS: Final = 1_000
MOST_IMPORTS: Final = 1_000  # the ABI has fewer than a hundred
MOST_FUNCTIONS: Final = 1_000_000
MOST_TABLES: Final = 16
MOST_TABLE_ELEMENTS: Final = 200_000
MOST_MEMORIES: Final = 100
MOST_GLOBALS: Final = 10_000
MOST_EXPORTS: Final = 100_000
MOST_SEGMENTS: Final = 100_000
MOST_LOCALS: Final = 50_000
MOST_BODY_BYTES: Final = 7_654_321
