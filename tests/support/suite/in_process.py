"""A service that runs in the test's own process for the time of a block."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

from trellis.config.settings import ServiceSettings
from trellis.runtime.run import Service

S = TypeVar("S", bound=ServiceSettings)
A = TypeVar("A", bound=Service)


@contextlib.asynccontextmanager
async def serving(create: Callable[[S], A], model: type[S], settings: Mapping[str, Any]) -> AsyncIterator[A]:
    """Run the service that ``create`` makes of those of the settings that its model has; it must not end by itself."""
    known = {name: value for name, value in settings.items() if name in model.model_fields}
    service = create(model(**known))
    stop = asyncio.Event()
    task = asyncio.create_task(service.run(stop), name=service.name)
    try:
        yield service
        assert not task.done(), f"it ended: {task.exception()}"
    finally:
        stop.set()
        _, late = await asyncio.wait({task}, timeout=30)
        assert not late, "did not stop within 30 s"
        await task
