"""The change that an informer reports: old and new projection of an object.

Values only. Created by ``informer``, read by the handlers of services.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class ChangeKind(StrEnum):
    """Kind of a change of an object."""

    ADDED = "Added"
    MODIFIED = "Modified"
    DELETED = "Deleted"


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """A difference between the cached and the current state of an object.

    An object that was deleted and re-created unobserved is MODIFIED; its uid, if projected, differs.
    """

    kind: ChangeKind
    key: str
    old: T | None
    new: T | None
