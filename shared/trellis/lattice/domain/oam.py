"""Reads the parts of an OAM manifest; a part of the wrong type raises an error with its path.

Pure. In: decoded JSON. Out: maps, lists, strings. Called by ``trellis.lattice.domain.manifests``. Source:
core.oam.dev/v1beta1 Application as wadm 0.21 accepts and returns it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trellis.lattice.domain.reading import LatticeDataError


class ManifestError(LatticeDataError):
    """An invalid manifest; the message names the field."""


def table(holder: Mapping[str, Any], key: str, place: str) -> Mapping[str, Any]:
    """Return a map, empty if it is missing or null.

    Raises:
        ManifestError: the value has another type.
    """
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ManifestError(f"`{place}.{key}` is not a map")
    return value


def rows(holder: Mapping[str, Any], key: str, place: str) -> list[Mapping[str, Any]]:
    """Return a list of maps, empty if it is missing or null.

    Raises:
        ManifestError: the value has another type.
    """
    value = holder.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ManifestError(f"`{place}.{key}` is not a list")
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise ManifestError(f"`{place}.{key}[{index}]` is not a map")
    return value


def word(holder: Mapping[str, Any], key: str, place: str, *, required: bool = False) -> str:
    """Return a string, empty if it is missing or null.

    Raises:
        ManifestError: the value has another type, or is required and empty.
    """
    value = holder.get(key)
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise ManifestError(f"`{place}.{key}` is not a string")
    if required and not value:
        raise ManifestError(f"`{place}.{key}` is missing")
    return value


def strings(holder: Mapping[str, Any], key: str, place: str) -> dict[str, str]:
    """Return a map of strings; numbers and booleans are converted to text.

    Raises:
        ManifestError: the value is not a map, or contains a value of another type.
    """
    found = table(holder, key, place)
    for name, value in found.items():
        if not isinstance(value, str | int | float):
            raise ManifestError(f"`{place}.{key}.{name}` is not a string")
    return {str(name): value if isinstance(value, str) else str(value).lower() for name, value in found.items()}
