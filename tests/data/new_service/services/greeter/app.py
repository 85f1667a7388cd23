"""Wires greeter. In: settings. Out: a service to run. Called by ``__main__`` and ``trellis run``."""

from __future__ import annotations

from functools import partial

from greeter.handlers import CONSUMED, on_node
from greeter.settings import Settings
from trellis.bus.consume.queue import KeyedQueue
from trellis.runtime.run import Base, LedService, Work
from trellis.telemetry import TraceContext, get_logger, setup

_log = get_logger(__name__)


def create_app(settings: Settings) -> LedService:
    """Return the service; it connects when it is run."""
    return LedService(
        name=settings.service,
        settings=settings,
        telemetry=setup(
            settings.service, otlp_endpoint=settings.otlp_endpoint, sample_ratio=settings.trace_sample_ratio
        ),
        compose=partial(compose, settings),
        namespaces={settings.namespace: {}},
    )


def compose(settings: Settings, base: Base) -> Work:
    """Join the parts for one term of leadership."""
    queue = KeyedQueue[str](workers=1, name="nodes", telemetry=base.telemetry)
    base.bus.subscribe("nodes", CONSUMED, on_node(queue))

    async def greet(name: str, trace: TraceContext | None) -> None:
        del trace
        _log.info("greeting", greeting=settings.greeting, node=name)

    return Work([], {queue: greet}, lambda: None, lambda: None)
