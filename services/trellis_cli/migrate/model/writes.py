"""What a step of a migration does to one object of any kind.

Pure data: made by the plans, carried out by ``migrate_run``. Invariant: each names the very object, in the very state,
that it was planned on; a patch does so by its own ``test`` operations, and what is made is refused if it is there.
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
    """Make an object that is not there."""

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
