"""Writes of a migration step to one object of any kind.

Pure data: created by the plans, executed by ``migrate.run``. Invariant: each write applies only to the unchanged object
of the plan; a patch has ``test`` operations for that, and a create fails if the object exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trellis.kube.resources import Resource


@dataclass(frozen=True, slots=True)
class PatchObject:
    """Change an object by a JSON patch."""

    res: Resource
    namespace: str | None
    name: str
    ops: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class CreateObject:
    """Create an object that does not exist."""

    res: Resource
    namespace: str | None
    manifest: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete an object."""

    res: Resource
    namespace: str | None
    name: str
    uid: str
    resource_version: str
