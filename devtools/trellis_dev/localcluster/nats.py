"""One nats-server with JetStream that can be stopped, killed, frozen and restarted on the same port and store.

In: a directory for it alone. Out: a URL on the loopback address. Called by tests of the bus and by benchmarks; a
cluster has its own. Invariant: the port is chosen once, so clients reconnect; if the owning process dies, the server is
killed and the directory removed.
"""

from __future__ import annotations

import secrets
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from trellis_dev.localcluster import tools
from trellis_dev.localcluster.commands import nats_server
from trellis_dev.localcluster.guard import Guard, guard
from trellis_dev.localcluster.ports import LOOPBACK, free_ports, is_free
from trellis_dev.localcluster.processes import ProcessRecord, alive, end, freeze, send, spawn
from trellis_dev.localcluster.readiness import nats_answers, wait_ready

_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 10.0


class NatsServer:
    """A nats-server and its store. A context manager; synchronous, so usable from several event loops.

    ``config``: a file with users and accounts, for a server with authentication and permissions.
    """

    def __init__(self, directory: Path, *, config: Path | None = None) -> None:
        self._directory = directory
        self._config = config
        self._token = secrets.token_hex(16)
        self._guard: Guard | None = None
        self._process: ProcessRecord | None = None
        self.port = 0
        self.jetstream = True
        """True if the next start enables JetStream."""

    @property
    def url(self) -> str:
        """Address for clients; constant over restarts."""
        return f"nats://{LOOPBACK}:{self.port}"

    @property
    def store(self) -> Path:
        """Directory of the JetStream streams."""
        return self._directory / "store"

    @property
    def pid(self) -> int | None:
        """Pid while it runs (or is stopped by SIGSTOP), else None."""
        return self._process.pid if self._process and alive(self._process) else None

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

    def start(self) -> None:
        """Start the server on its port with its store, and wait until it responds.

        Raises:
            StartError: it ended, or does not respond within 20 s; PortInUseError if its port is in use.
        """
        if self.pid is not None:
            return
        deadline = time.monotonic() + _STOP_SECONDS
        while not is_free(self.port) and time.monotonic() < deadline:
            time.sleep(0.02)
        log = self._directory / "nats-server.log"
        store = self.store if self.jetstream else None
        argv = nats_server(tools.ensure("nats-server"), self.port, store, self._config)
        position = log.stat().st_size if log.exists() else 0
        process = self._process = spawn(argv, log=log, token=self._token)
        wait_ready("nats-server", lambda: nats_answers(self.port), process, (log, position), _START_SECONDS)

    def stop(self) -> None:
        """Stop the server gracefully (SIGTERM): it notifies clients and closes the store."""
        self._end(grace=_STOP_SECONDS)

    def kill(self) -> None:
        """Kill the server (SIGKILL), as in a crash or machine failure."""
        self._end(grace=0)

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open without responses."""
        if self._process:
            freeze(self._process)

    def resume(self) -> None:
        """Continue the server (SIGCONT)."""
        if self._process:
            send(self._process, signal.SIGCONT)

    def close(self) -> None:
        """Stop the server for good and remove its directory."""
        self.kill()
        if self._guard:
            self._guard.abandon()
            self._guard = None

    def _end(self, grace: float) -> None:
        if self._process:
            end([self._process], grace=grace)
            self._process = None
