"""JSON Schemas for the texts that settings accept.

Pure. A type of a setting whose text another program has to check, the Helm chart for one, has a :class:`ValueSchema` as
metadata; pydantic ignores it. Called by the modules that define such types, and by the generator of the chart's schema.
Invariant: a schema accepts every value that the type accepts, in its usual spelling; it may accept more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class ValueSchema:
    """JSON Schema (draft 7) of a value, without its range. Patterns are in the common syntax of Python, RE2 and ECMA.

    Compared by identity, as ``typing`` hashes the metadata of a type.
    """

    schema: Mapping[str, Any]


def text_schema(pattern: str) -> ValueSchema:
    """Return the schema of a text that matches a pattern as a whole."""
    return ValueSchema({"type": "string", "pattern": f"^(?:{pattern})$"})


def listed_schema(pattern: str) -> ValueSchema:
    """Return the schema of a text with items separated by commas, each of which matches a pattern."""
    return text_schema(rf"\s*(?:{pattern})\s*(?:,\s*(?:{pattern})\s*)*,?\s*")


def number_schema(pattern: str, **bounds: float) -> ValueSchema:
    """Return the schema of a number, or of a text that matches a pattern; ``bounds`` are those of a number."""
    return ValueSchema({"type": ["number", "string"], "pattern": f"^(?:{pattern})$", **bounds})
