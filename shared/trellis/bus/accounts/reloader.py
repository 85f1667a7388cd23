"""Reloads changed certificates of a NATS server: ``python -m trellis.bus.accounts.reloader DIR PIDFILE``.

In: the directory of the certificates, mounted from a Secret, and the PID file of the server. Out: SIGHUP to the server.
Called by the chart as a sidecar of the server if another program renews the certificates. Invariants: the server may
have started with older certificates than those found first, so it gets one signal at the start too; a missing file or
process is waited for; only a digest of the content is kept. Imports the standard library only, as it runs beside each
server.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from pathlib import Path


class Reloader:
    """Compares what the certificates are with what the server was last told of."""

    def __init__(self, certificates: Path, pid_file: Path) -> None:
        self._certificates = certificates
        self._pid_file = pid_file
        self._told: str | None = None

    def look(self) -> str:
        """Tell the server if the certificates are others than it was told of; return what was done, "" if nothing."""
        try:
            found = digest(self._certificates)
        except OSError as error:
            return f"the certificates in {self._certificates} cannot be read: {error.strerror}"
        if found == self._told:
            return ""
        try:
            os.kill(int(self._pid_file.read_text()), signal.SIGHUP)
        except (OSError, ValueError, OverflowError) as error:
            return f"no NATS server process for {self._pid_file}: {error}"
        self._told = found
        return "sent a reload signal to the NATS server"


def digest(directory: Path) -> str:
    """Return what tells the files of a directory from others; raises OSError if one cannot be read.

    What begins with a dot is how the kubelet swaps all files at once.
    """
    found = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        if not path.name.startswith("."):
            content = path.read_bytes()
            found.update(f"{path.name} {len(content)} ".encode())
            found.update(content)
    return found.hexdigest()


def main(pause: float = 5.0) -> None:
    """Look every ``pause`` seconds until SIGTERM; write a line when something else happens than at the last look."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    directory, pid_file = (Path(argument) for argument in sys.argv[1:3])
    reloader, said = Reloader(directory, pid_file), ""
    while True:
        done = reloader.look()
        if done and done != said:
            print(done, flush=True)  # noqa: T201 (a log of one line a renewal needs no library)
        said = done
        time.sleep(pause)


if __name__ == "__main__":
    main()
