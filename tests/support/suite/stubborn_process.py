"""A service whose one run never returns. ``python stubborn_process.py MODE``, settings as every service has them.

MODE: ``waits`` (for ever, cancelled it ends), ``ignores`` (also being cancelled), ``blocks`` (the event loop),
``thread`` (it returns, but a thread of the loop's pool goes on).
"""

from __future__ import annotations

import asyncio
import sys
import time

from trellis.bus.consume.queue import KeyedQueue
from trellis.config.settings import ServiceSettings, load
from trellis.runtime.run import Base, LedService, Work, run_services
from trellis.telemetry import TraceContext, get_logger, setup, setup_logging

SERVICE = "stubborn"
BEGUN = "the run has begun"
_FOR_EVER = 600.0

_log = get_logger(__name__)


async def ignore() -> None:
    while True:
        try:
            await asyncio.sleep(_FOR_EVER)
        except asyncio.CancelledError:
            _log.info("cancelled in vain")


async def run_as(mode: str) -> None:
    _log.info(BEGUN)
    match mode:
        case "ignores":
            await ignore()
        case "waits":
            await asyncio.sleep(_FOR_EVER)
        case "blocks":
            end = time.monotonic() + _FOR_EVER
            while time.monotonic() < end:
                time.sleep(0.01)  # noqa: ASYNC251 - the point of it
        case "thread":
            asyncio.get_running_loop().run_in_executor(None, time.sleep, _FOR_EVER)


def main(mode: str) -> None:
    settings = load(ServiceSettings)
    setup_logging(log_format="json", level="info")
    telemetry = setup(SERVICE, otlp_endpoint=settings.otlp_endpoint)

    async def run(_: str, trace: TraceContext | None) -> None:
        with telemetry.tracer.start_as_current_span("stubborn run"):
            del trace
            await run_as(mode)

    def compose(base: Base) -> Work:
        queue = KeyedQueue(workers=1, name="keys", telemetry=base.telemetry)
        return Work([], {queue: run}, lambda: queue.add("key"), lambda: None)

    service = LedService(SERVICE, settings, telemetry, compose, {settings.namespace: {}})
    asyncio.run(run_services([service], health_port=settings.health_port))


if __name__ == "__main__":
    main(sys.argv[1])
