"""One nats-server with JetStream, to be stopped, killed, frozen and started again on the same port and store.

In: a directory that belongs to it alone. Out: a URL on the loopback address. Called by tests of the bus and by
benchmarks; a whole cluster has its own. Invariant: the port is chosen once, so clients find the server again; if the
process that owns it dies, the server is killed and the directory removed.
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
    """A nats-server and its store. A context manager; usable from several event loops, as nothing here is async.

    ``config`` is a file with users and accounts, for a server that does not let everybody do everything.
    """

    def __init__(self, directory: Path, *, config: Path | None = None) -> None:
        self._directory = directory
        self._config = config
        self._token = secrets.token_hex(16)
        self._guard: Guard | None = None
        self._process: ProcessRecord | None = None
        self.port = 0
        self.jetstream = True
        """Whether the next start is with JetStream."""

    @property
    def url(self) -> str:
        """Address for clients; the same over restarts."""
        return f"nats://{LOOPBACK}:{self.port}"

    @property
    def store(self) -> Path:
        """Where JetStream keeps its streams."""
        return self._directory / "store"

    @property
    def pid(self) -> int | None:
        """Pid while it runs (or is frozen), else None."""
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
        """Start it on its port with its store, and wait until it answers.

        Raises:
            StartError: if it ends, or does not answer within 20 s; PortInUseError if its port is taken.
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
        """End it the polite way (SIGTERM): clients are told, the store is closed."""
        self._end(grace=_STOP_SECONDS)

    def kill(self) -> None:
        """End it by SIGKILL, as a crash or a lost machine would."""
        self._end(grace=0)

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open and nothing answers."""
        if self._process:
            freeze(self._process)

    def resume(self) -> None:
        """Let it run on (SIGCONT)."""
        if self._process:
            send(self._process, signal.SIGCONT)

    def close(self) -> None:
        """End it for good and remove its directory."""
        self.kill()
        if self._guard:
            self._guard.abandon()
            self._guard = None

    def _end(self, grace: float) -> None:
        if self._process:
            end([self._process], grace=grace)
            self._process = None
