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
    """Compares the certificates with those of the last reload signal."""

    def __init__(self, certificates: Path, pid_file: Path) -> None:
        self._certificates = certificates
        self._pid_file = pid_file
        self._reported: str | None = None

    def look(self) -> str:
        """Signal the server if the certificates changed; return a message about the result, "" if nothing was done."""
        try:
            found = digest(self._certificates)
        except OSError as error:
            return f"the certificates in {self._certificates} cannot be read: {error.strerror}"
        if found == self._reported:
            return ""
        try:
            os.kill(int(self._pid_file.read_text()), signal.SIGHUP)
        except (OSError, ValueError, OverflowError) as error:
            return f"no NATS server process for {self._pid_file}: {error}"
        self._reported = found
        return "sent a reload signal to the NATS server"


def digest(directory: Path) -> str:
    """Return a SHA-256 digest of the files of a directory; raises OSError if a file cannot be read.

    Names with a leading dot are skipped: the kubelet uses them to replace all files atomically.
    """
    found = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        if not path.name.startswith("."):
            content = path.read_bytes()
            found.update(f"{path.name} {len(content)} ".encode())
            found.update(content)
    return found.hexdigest()


def main(pause: float = 5.0) -> None:
    """Check every ``pause`` seconds until SIGTERM; print a line if the result differs from that of the last check."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    directory, pid_file = (Path(argument) for argument in sys.argv[1:3])
    reloader, last_result = Reloader(directory, pid_file), ""
    while True:
        done = reloader.look()
        if done and done != last_result:
            print(done, flush=True)  # noqa: T201 (a log of one line a renewal needs no library)
        last_result = done
        time.sleep(pause)


if __name__ == "__main__":
    main()
