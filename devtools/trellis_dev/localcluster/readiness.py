"""Waiting for a component: it is ready, it has ended, or it takes too long.

In: a check, the process and its log. Out: nothing, or an error with the end of the log. Called by everything that
starts a component. Invariant: a process that ended is noticed at once and not after the timeout, and a port that
was taken is told apart from any other cause.
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
"""A log file, and the size it had before this start: what was written earlier is not this process's."""


def tail(log: LogPosition) -> str:
    """Return the last lines this process wrote, at most 12."""
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
    """Wait until ``check`` holds.

    Raises:
        PortInUseError: if the process ended because a port was taken.
        StartError: if it ended for another reason, or was not ready after ``seconds``.
        AbortedError: if ``abort`` was set.
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
            raise AbortedError(f"{tool}: asked to stop while starting")
        if time.monotonic() > deadline:
            raise StartError(
                f"{tool} was not ready after {seconds:.0f} s; is the machine very busy? "
                f"The end of {log[0]}:\n{tail(log)}"
            )
        time.sleep(_POLL)


def nats_answers(port: int, host: str = LOOPBACK) -> bool:
    """Return whether a NATS server greets on this port."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            return connection.recv(5) == b"INFO "
    except OSError:
        return False


def http_ok(url: str) -> bool:
    """Return whether a GET of a plain-HTTP URL is answered with 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - our own loopback address
            return bool(answer.status == 200)
    except OSError:
        return False


def etcd_healthy(port: int) -> bool:
    """Return whether etcd says of itself that it is healthy: it has a leader and can commit."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/health", timeout=2) as answer:
            return bool(json.load(answer).get("health") == "true")
    except (OSError, ValueError):
        return False
