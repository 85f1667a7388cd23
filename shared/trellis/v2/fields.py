"""Reads fields of untrusted JSON leniently: a missing field, or one of another type, has its default.

Pure. In: decoded JSON. Out: values of the expected type, of bounded size. Called by the views and messages of this
package. Invariant: nothing raises. Views of other systems' objects have to survive their next version; strict readers,
which name the invalid field, are in ``trellis.lattice.domain.reading``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from trellis.installer_api.parse_int import whole
from trellis.installer_api.redaction import redact_url

TEXT_KEPT: Final = 512
"""Characters of a name, label or address that are kept."""
MESSAGE_KEPT: Final = 2048
"""Characters of a message that are kept: errors of hosts contain descriptions of whole interfaces."""
ITEMS_KEPT: Final = 1000
"""Entries of a list or a map that are kept; etcd limits an object to 1.5 MiB."""

Json = Mapping[str, Any]


def mapping(value: object, key: str = "") -> Json:
    """Return an object, or the object in its field ``key``; {} if it is not one."""
    if key:
        value = mapping(value).get(key)
    return value if isinstance(value, dict) else {}


def items(data: Json, key: str) -> list[Json]:
    """Return the objects in a list; other entries are omitted."""
    value = data.get(key)
    if not isinstance(value, list):
        return []
    return [item for item in value[:ITEMS_KEPT] if isinstance(item, dict)]


def omitted(data: Json, key: str) -> int:
    """Return the number of entries of a list beyond those that are kept."""
    value = data.get(key)
    return max(len(value) - ITEMS_KEPT, 0) if isinstance(value, list) else 0


def text(data: Json, key: str, *other: str, most: int = TEXT_KEPT) -> str:
    """Return a string, "" if there is none; ``other``: further names of the field."""
    for name in (key, *other):
        value = data.get(name)
        if isinstance(value, str) and value:
            return value if len(value) <= most else f"{value[: most - 1]}…"
    return ""


def message(data: Json, key: str = "message") -> str:
    """Return a message for users, without credentials in URLs."""
    value = data.get(key)
    # Redacted before it is cut: of a URL that is cut, the password could remain.
    return text({key: redact_url(value)}, key, most=MESSAGE_KEPT) if isinstance(value, str) else ""


def number(data: Json, key: str, *other: str) -> int | None:
    """Return an integer of at least 0, also one that is a string, as proto3 JSON has for 64 bits; None otherwise."""
    for name in (key, *other):
        value = data.get(name)
        if isinstance(value, str):
            value = whole(value)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def texts(data: Json, key: str) -> dict[str, str]:
    """Return a map of strings; other values are omitted."""
    found = mapping(data, key)
    kept = [(name, value) for name, value in found.items() if isinstance(name, str) and isinstance(value, str)]
    return {name[:TEXT_KEPT]: value[:TEXT_KEPT] for name, value in kept[:ITEMS_KEPT]}


def words(data: Json, key: str) -> tuple[str, ...]:
    """Return the strings in a list; other entries are omitted."""
    value = data.get(key)
    if not isinstance(value, list):
        return ()
    return tuple(item[:TEXT_KEPT] for item in value[:ITEMS_KEPT] if isinstance(item, str))


def names(data: Json, key: str) -> tuple[str, ...]:
    """Return the field ``name`` of the objects in a list."""
    return tuple(name for name in (text(item, "name") for item in items(data, key)) if name)


def seconds(stamp: str) -> float | None:
    """Return an RFC 3339 time in Unix seconds, None if it is not one."""
    try:
        found = datetime.fromisoformat(stamp)
        return found.timestamp() if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def listed(values: Sequence[str], most: int) -> str:
    """Return at most ``most`` values as text, and the number of the omitted ones."""
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return f"{', '.join(values[:most])}{more}"
