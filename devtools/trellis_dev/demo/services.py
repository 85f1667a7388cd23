"""The Python processes of the demo: ``trellis run``, as a user starts it, the console, and the simulated kubelets.

In: arguments, environment, log file. Out: a running process, or an error with the end of its log. Called by the demo.
Invariant: each process has the token of the cluster or server that the demo started in its environment; the cleanup of
these ends it too, even after a SIGKILL of this process.
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
from trellis_dev.localcluster.supervisor import CLUSTER_VARIABLE

RUN: Final = ("trellis_cli", "run")
KUBELETS: Final = ("trellis_dev.demo.kubelets",)
READY_SECONDS: Final = 120.0
STOP_SECONDS: Final = 15.0
_POLL: Final = 0.1
_TAIL_LINES: Final = 3


@dataclass(eq=False)
class Program:
    """One process: a Python module with its arguments; ``called`` is its name in messages.

    ``environment`` is its complete environment except for the token.
    """

    module: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    token: str
    called: str
    process: ProcessRecord | None = field(default=None, init=False)

    def spawn(self, **more: str) -> ProcessRecord:
        """Start the process with additional variables, in its own session, so that Ctrl-C does not reach it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", *self.module],
            {**self.environment, **more, CLUSTER_VARIABLE: self.token},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self.log), flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP),
        )
        self.process = record_of(pid)
        return self.process

    def check(self) -> None:
        """Raise CommandError if the process has ended."""
        if self.process is None or not alive(self.process):
            raise CommandError(f"{self.called} ended unexpectedly; {self.end_of_log()}")

    async def stop(self) -> None:
        """End the process as Kubernetes does: SIGTERM, grace period, SIGKILL. By then its last spans are exported."""
        process, self.process = self.process, None
        if process is not None:
            await asyncio.to_thread(end, [process], grace=STOP_SECONDS)

    def end_of_log(self) -> str:
        """Return the end of the log on one line."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        return "the end of the log: " + (" | ".join(lines[-_TAIL_LINES:]) or "empty")


@dataclass(eq=False)
class Services(Program):
    """A process with a health port: all services, or the console."""

    async def start(self, **more: str) -> ProcessRecord:
        """Start the process with additional variables, and wait until it is ready.

        Raises:
            CommandError: the process ended, or is not ready after ``READY_SECONDS``.
        """
        (port,) = free_ports(1)
        process = self.spawn(**more, TRELLIS_HEALTH_PORT=str(port))
        deadline = time.monotonic() + READY_SECONDS
        while not await asyncio.to_thread(http_ok, f"http://{LOOPBACK}:{port}/readyz"):
            self.check()
            if time.monotonic() > deadline:
                raise CommandError(f"not ready after {READY_SECONDS:.0f} s: {self.called}; {self.end_of_log()}")
            await asyncio.sleep(_POLL)
        return process
