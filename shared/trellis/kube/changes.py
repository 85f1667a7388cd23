"""The change that an informer reports: former and present projection of an object.

Values only. Created by ``informer``, read by the handlers of services.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class ChangeKind(StrEnum):
    """What happened to an object."""

    ADDED = "Added"
    MODIFIED = "Modified"
    DELETED = "Deleted"


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One difference between what was known and what is.

    An object deleted and made again unobserved is MODIFIED; its uid, if projected, tells.
    """

    kind: ChangeKind
    key: str
    old: T | None
    new: T | None
