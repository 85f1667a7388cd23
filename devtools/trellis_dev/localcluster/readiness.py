"""Waits for a component until it is ready, has ended, or a timeout expires.

In: a check, the process and its log. Out: nothing, or an error with the end of the log. Called by all code that
starts a component. Invariant: an ended process is detected at once, not after the timeout, and a port in use is
distinguished from other causes.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trellis_dev.localcluster.errors import AbortedError, PortInUseError, StartError
from trellis_dev.localcluster.ports import LOOPBACK
from trellis_dev.localcluster.processes import ProcessRecord, alive

_POLL: Final = 0.05
_TAIL_LINES: Final = 12
_TAIL_BYTES: Final = 16_384
_PORT_IN_USE: Final = "address already in use"

LogPosition = tuple[Path, int]
"""A log file and its size before this start; earlier content belongs to previous processes."""


def tail(log: LogPosition) -> str:
    """Return the last lines of this process, at most 12."""
    path, position = log
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(position, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-_TAIL_LINES:])


def wait_ready(
    tool: str,
    check: Callable[[], bool],
    process: ProcessRecord,
    log: LogPosition,
    seconds: float,
    abort: threading.Event | None = None,
) -> None:
    """Wait until ``check`` succeeds.

    Raises:
        PortInUseError: the process ended because a port is in use.
        StartError: it ended for another reason, or was not ready after ``seconds``.
        AbortedError: ``abort`` was set.
    """
    deadline = time.monotonic() + seconds
    while True:
        ended = not alive(process)
        if ended:
            text = tail(log)
            kind = PortInUseError if _PORT_IN_USE in text else StartError
            raise kind(f"{tool} ended while starting; the end of {log[0]}:\n{text}")
        if check():
            return
        if abort is not None and abort.is_set():
            raise AbortedError(f"{tool}: stop requested during the start")
        if time.monotonic() > deadline:
            raise StartError(
                f"{tool} was not ready after {seconds:.0f} s; check the load of the machine. "
                f"The end of {log[0]}:\n{tail(log)}"
            )
        time.sleep(_POLL)


def nats_answers(port: int, host: str = LOOPBACK) -> bool:
    """Return whether a NATS server responds on this port."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            return connection.recv(5) == b"INFO "
    except OSError:
        return False


def http_ok(url: str) -> bool:
    """Return whether a GET of a plain-HTTP URL returns 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - loopback address
            return bool(answer.status == 200)
    except OSError:
        return False


def etcd_healthy(port: int) -> bool:
    """Return whether etcd reports itself healthy: it has a leader and can commit."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/health", timeout=2) as answer:
            return bool(json.load(answer).get("health") == "true")
    except (OSError, ValueError):
        return False
