"""The services as one process of their own: ``trellis run``, as a user would start it; the console as another.

In: environment, log file. Out: a process that is ready, or an error with the end of its log. Called by the demo.
Invariant: the process carries the token of its surroundings, so whoever cleans those up ends it too, even if this
process is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trellis_cli.common.errors import CommandError
from trellis_dev.localcluster.ports import LOOPBACK, free_ports
from trellis_dev.localcluster.processes import ProcessRecord, alive, end, record_of
from trellis_dev.localcluster.readiness import http_ok
from trellis_dev.localcluster.supervisor import MARK

READY_SECONDS: Final = 120.0
STOP_SECONDS: Final = 15.0
_POLL: Final = 0.1
_TAIL_LINES: Final = 3


@dataclass(eq=False)
class Services:
    """One process with all services, or with those that are ``named``, which people call ``called``.

    ``environment`` is its whole environment but for the health port.
    """

    environment: Mapping[str, str]
    log: Path
    token: str
    named: tuple[str, ...] = ()
    called: str = "the services"
    process: ProcessRecord | None = field(default=None, init=False)

    async def start(self, **more: str) -> None:
        """Start it, with more variables, and wait until it is ready.

        Raises:
            CommandError: it ended, or is not ready after ``READY_SECONDS``.
        """
        (port,) = free_ports(1)
        self.process = self._spawn({**self.environment, **more, "TRELLIS_HEALTH_PORT": str(port), MARK: self.token})
        deadline = time.monotonic() + READY_SECONDS
        while not await asyncio.to_thread(http_ok, f"http://{LOOPBACK}:{port}/readyz"):
            self.check()
            if time.monotonic() > deadline:
                raise CommandError(f"not ready after {READY_SECONDS:.0f} s: {self.called}; {self._last_words()}")
            await asyncio.sleep(_POLL)

    def check(self) -> None:
        """Raise CommandError if the process has ended."""
        if self.process is None or not alive(self.process):
            raise CommandError(f"{self.called} ended unasked; {self._last_words()}")

    async def stop(self) -> None:
        """End it as Kubernetes would: SIGTERM, some time to finish, SIGKILL. Its last spans are sent by then."""
        process, self.process = self.process, None
        if process is not None:
            await asyncio.to_thread(end, [process], grace=STOP_SECONDS)

    def _spawn(self, environment: Mapping[str, str]) -> ProcessRecord:
        """Start the process in a session of its own, so that the terminal's Ctrl-C does not reach it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "trellis_cli", "run", *self.named],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self.log), flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP),
        )
        return record_of(pid)

    def _last_words(self) -> str:
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        return "the end of the log: " + (" | ".join(lines[-_TAIL_LINES:]) or "it is empty")
