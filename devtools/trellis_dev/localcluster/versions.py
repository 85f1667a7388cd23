"""The versions of all programs of a local cluster, read from ``versions.toml`` in this package.

In: the TOML file. Out: one frozen record per product. Called by the tool search and by tests.
Invariant: the file is part of the wheel; a missing entry is a defect of the package and raises KeyError.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Product:
    """One product: its version, the minimum version, and the Go module it is built from."""

    version: str
    minimum: str | None = None
    module: str | None = None
    sum: str | None = None


@cache
def products() -> dict[str, Product]:
    """Return every product by its name in ``versions.toml``."""
    text = resources.files("trellis_dev.localcluster").joinpath("versions.toml").read_text(encoding="utf-8")
    return {name: Product(**entry) for name, entry in tomllib.loads(text).items()}


def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version for comparison: ``v1.36.3`` → ``(1, 36, 3)``; a suffix like ``-rc1`` is cut off.

    Raises:
        ValueError: there is no number at the start.
    """
    numbers = text.strip().removeprefix("v").partition("-")[0].partition("+")[0].split(".")
    return tuple(int(number) for number in numbers)
