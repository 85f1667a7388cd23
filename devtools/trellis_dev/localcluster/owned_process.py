"""One process with a port, in a directory for it alone, that ends with the process that owns it.

In: a directory, and ``start`` of a subclass. Out: the process. Base of ``nats`` and ``v2host``. Invariants: the port is
chosen once, so clients reconnect after a restart; if the owning process dies, this one is killed and the directory
removed.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from trellis_dev.localcluster.guard import Guard, guard
from trellis_dev.localcluster.ports import free_ports
from trellis_dev.localcluster.processes import ProcessRecord, end


class OwnedProcess(ABC):
    """A context manager; synchronous, so usable from several event loops. ``grace``: seconds of a graceful stop."""

    def __init__(self, directory: Path, grace: float) -> None:
        self._directory = directory
        self._grace = grace
        self._token = secrets.token_hex(16)
        self._guard: Guard | None = None
        self._process: ProcessRecord | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._guard = guard(self._directory, self._token)
        (self.port,) = free_ports(1)
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def start(self) -> None:
        """Start the process on its port, if it does not run, and wait until it is ready."""

    def stop(self) -> None:
        """Stop the process gracefully (SIGTERM)."""
        self._end(self._grace)

    def kill(self) -> None:
        """Kill the process (SIGKILL), as in a crash or machine failure."""
        self._end(0.0)

    def close(self) -> None:
        """End the process for good and remove its directory."""
        self.kill()
        if self._guard is not None:
            self._guard.abandon()
            self._guard = None

    def _end(self, grace: float) -> None:
        if self._process is not None:
            end([self._process], grace=grace)
            self._process = None
