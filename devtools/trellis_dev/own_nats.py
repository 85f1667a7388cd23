"""A nats-server of this process: ``trellis run --own-nats DIR``, for machines without a bus.

In: a directory. Out: an address with a password, and a server for the lifetime of this process. Called by ``run``.
Invariants: stored data stays in the directory; only users with read access to it can connect; the server ends with this
process, even on SIGKILL (on Linux; elsewhere the next start ends it); if it ends earlier, it is restarted on its port.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import secrets
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, Final

from trellis.config.settings import SettingsError
from trellis.limits.backoff import Attempts
from trellis.telemetry import get_logger
from trellis_dev.localcluster import tools
from trellis_dev.localcluster.errors import LocalClusterError
from trellis_dev.localcluster.ports import LOOPBACK, free_ports
from trellis_dev.localcluster.processes import ProcessRecord, end, record_of
from trellis_dev.localcluster.readiness import nats_answers

_USER: Final = "trellis"
_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02
_LIVED_SECONDS: Final = 60.0
"""Uptime in seconds after which the restart backoff is reset."""
_PR_SET_PDEATHSIG: Final = 1

_log = get_logger(__name__)


class OwnNats:
    """The server. Each process has a new port and password; the store is kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._password = secrets.token_urlsafe(24)
        (self._port,) = free_ports(1)

    @property
    def url(self) -> str:
        """Address for the services of this process, with the password."""
        return f"nats://{_USER}:{self._password}@{LOOPBACK}:{self._port}"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the server within the block, and restart it when it ends.

        Raises:
            SettingsError: the directory cannot be used or is in use, nats-server is missing, or it is not
                ready within 20 s; with the remedy.
        """
        program = _program()
        with self._locked():
            self._end_former()
            process = await self._start(program)
            keeping = asyncio.create_task(self._keep(program, process), name="own nats-server")
            try:
                yield
            finally:
                keeping.cancel()
                await asyncio.wait({keeping})

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the directory for this process; only its owner can read it."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._directory.chmod(0o700)
            lock = self._open("lock")
        except OSError as error:
            raise SettingsError(f"--own-nats: {self._directory} cannot be used: {error.strerror}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                message = f"--own-nats: {self._directory} is in use by another trellis process: use another"
                raise SettingsError(message) from None
            yield

    def _open(self, name: str, flags: int = 0) -> IO[bytes]:
        return os.fdopen(os.open(self._directory / name, os.O_RDWR | os.O_CREAT | flags, 0o600), "r+b")

    def _end_former(self) -> None:
        """End the server of a killed process: two servers would corrupt the store."""
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            end([ProcessRecord(**json.loads((self._directory / "process.json").read_bytes()))], grace=_STOP_SECONDS)

    async def _start(self, program: Path) -> Process:
        with self._open("nats-server.conf", os.O_TRUNC) as file:
            file.write(self._config().encode())
        with self._open("nats-server.log", os.O_APPEND) as log:
            process = await asyncio.create_subprocess_exec(
                program,
                "--config",
                str(self._directory / "nats-server.conf"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # no Ctrl-C: the services need the server while they stop
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        (self._directory / "process.json").write_text(record_of(process.pid).model_dump_json(), encoding="utf-8")
        try:
            await self._answering(process)
        except BaseException:
            await _end(process)
            raise
        _log.info("own nats-server started", port=self._port, directory=str(self._directory))
        return process

    def _config(self) -> str:
        """Return the configuration: the loopback address, one user, a store."""
        return (
            f"listen: {json.dumps(f'{LOOPBACK}:{self._port}')}\n"
            f"jetstream {{ store_dir: {json.dumps(str((self._directory / 'store').absolute()))} }}\n"
            f"authorization {{ user: {_USER}, password: {json.dumps(self._password)} }}\n"
        )

    async def _answering(self, process: Process) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                while process.returncode is None:
                    if await asyncio.to_thread(nats_answers, self._port):
                        return
                    await asyncio.sleep(_POLL_SECONDS)
        state = "does not respond" if process.returncode is None else f"ended with status {process.returncode}"
        log = self._directory / "nats-server.log"
        raise SettingsError(f"--own-nats: nats-server {state}: see the end of {log}")

    async def _keep(self, program: Path, process: Process) -> None:
        """Restart the server when it ends; end it on cancellation."""
        attempts = Attempts()
        loop = asyncio.get_running_loop()
        while True:
            since = loop.time()
            try:
                status = await process.wait()
            finally:
                await _end(process)
            if loop.time() - since > _LIVED_SECONDS:
                attempts.reset()
            _log.error("own nats-server ended, restarting", status=status)
            while True:
                await asyncio.sleep(attempts.next())
                try:
                    process = await self._start(program)
                    break
                except (SettingsError, OSError) as error:
                    _log.error("own nats-server does not start, retrying", error=str(error))


def _program() -> Path:
    try:
        return tools.ensure("nats-server")
    except LocalClusterError as error:
        raise SettingsError(f"--own-nats: {error}") from None


async def _end(process: Process) -> None:
    """End the server gracefully, so that it closes its store without need for recovery."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _end_with_parent() -> None:
    """Make the kernel end this new process when its parent ends (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
