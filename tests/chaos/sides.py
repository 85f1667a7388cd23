"""The interface of a part of the workload: it carries out its steps and reads their result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Protocol

from chaos.model import Expected
from chaos.steps import Step


class Side(Protocol):
    """One part. ``deleted``: names of objects that services may delete, because users requested it."""

    deleted: set[str]

    async def begin(self) -> None:
        """Create the objects of the part, before any fault."""

    def act(self, step: Step) -> Awaitable[None]:
        """Return the work of a step; called for all steps in their order, awaited when their time has come."""

    def wrong(self, wanted: Expected) -> AsyncIterator[str]:
        """Yield differences from the expected state."""

    async def release(self) -> None:
        """Ask for the deletion of everything."""

    def left(self) -> AsyncIterator[str]:
        """Yield remaining objects."""

    async def clean_up(self) -> None:
        """Remove remaining objects, by force."""
