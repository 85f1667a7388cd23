"""`trellis` as a process that dies on order at its next write to the API server: before it is sent, or once done.

Run by a ``Forkserver``. In: the file named by ``TRELLIS_TEST_DEATH`` with the order ``before`` or ``after``. Renewals
of leases are no writes here: they come every second, and a process that dies in one has nothing under way. Its wall
clock is that of ``support.suite.stepped_clock``.
"""

from __future__ import annotations

import support.suite.stepped_clock  # noqa: F401  # isort: skip - before anything that reads the clock

import os
import signal
from pathlib import Path

import trellis_cli.command_line
from chaos.orders import AFTER, BEFORE, VARIABLE
from trellis.kube.transport import HttpRequest, HttpTransport, Reply
from trellis.services import SERVICES

_send = HttpTransport.send

for _one in SERVICES.values():
    _one.load("app")  # once for all children


def crash_on_order(order: Path) -> None:
    """Let this process die at the order."""

    async def send(self: HttpTransport, request: HttpRequest) -> Reply:
        writes = request.method != "GET" and "/leases" not in request.path and "reviews" not in request.path
        order_text = order_in(order) if writes else ""
        if order_text == BEFORE:
            die(order)
        reply = await _send(self, request)
        if order_text == AFTER:
            die(order)
        return reply

    HttpTransport.send = send  # type: ignore[method-assign]


def order_in(order: Path) -> str:
    """Return the order in the file, "" if there is none."""
    return order.read_text() if order.exists() else ""


def die(order: Path) -> None:
    """End as a crash does; the order is removed, so that it does not hold for a process that is started later."""
    order.unlink(missing_ok=True)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Be `trellis`, with what is in ``sys.argv``."""
    crash_on_order(Path(os.environ[VARIABLE]))
    trellis_cli.command_line.main()
