"""The interface of a part of the workload: it carries out its steps and reads their result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Protocol

from chaos.model import Expected
from chaos.steps import Step


class Side(Protocol):
    """One part. ``deleted``: names of objects that services may delete, because people asked for it."""

    deleted: set[str]

    async def begin(self) -> None:
        """Make what the part needs; nothing goes wrong yet."""

    def act(self, step: Step) -> Awaitable[None]:
        """Return what carries a step out; called for all steps in their order, awaited when their time has come."""

    def wrong(self, wanted: Expected) -> AsyncIterator[str]:
        """Yield what is not as it has to be."""

    async def release(self) -> None:
        """Ask for the deletion of everything."""

    def left(self) -> AsyncIterator[str]:
        """Yield what is still there of it."""

    async def clean_up(self) -> None:
        """Remove what is left, by force."""
