"""One nats-server with JetStream that can be stopped, killed, frozen and restarted on the same port and store.

In: a directory for it alone. Out: a URL on the loopback address. Called by tests of the bus and by benchmarks; a
cluster has its own.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Final

from trellis_dev.localcluster import tools
from trellis_dev.localcluster.commands import nats_server
from trellis_dev.localcluster.owned_process import OwnedProcess
from trellis_dev.localcluster.ports import LOOPBACK, is_free
from trellis_dev.localcluster.processes import alive, freeze, send, spawn
from trellis_dev.localcluster.readiness import nats_answers, wait_ready

_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 10.0


class NatsServer(OwnedProcess):
    """A nats-server and its store. A graceful stop notifies clients and closes the store.

    ``config``: a file with users and accounts, for a server with authentication and permissions.
    """

    def __init__(self, directory: Path, *, config: Path | None = None) -> None:
        super().__init__(directory, _STOP_SECONDS)
        self._config = config
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

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open without responses."""
        if self._process:
            freeze(self._process)

    def resume(self) -> None:
        """Continue the server (SIGCONT)."""
        if self._process:
            send(self._process, signal.SIGCONT)
