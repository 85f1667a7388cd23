"""A guest that sleeps on a tmpfs, which is then full: reading what was never written of its file must not end anybody.

Argument: a directory that a tmpfs of some MiB is mounted on, in a mount namespace of this process. Says "as it was".
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

from controller_host.guest.instance import Instance
from controller_host.guest.modules import Modules
from controller_host.guest.snapshots import Identity, SnapshotFailed, Snapshots
from support.guests import tape, wat


def fill(path: Path) -> None:
    """Write until nothing more is taken, not a byte."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    for length in (1 << 16, 1):
        try:
            while True:
                os.write(descriptor, b"\1" * length)
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017 - a program
    os.close(descriptor)


def main() -> None:
    directory = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(directory)], check=True)
    module = tape.module(Modules(directory.parent / "modules"), pages=100)
    snapshots = Snapshots(directory / "snapshots")
    assert snapshots.in_memory
    who = Identity("one", module.sha256, module.engine.key, "configured")
    awake, sleeper = tape.boot(module), tape.boot(module)
    for guest in (awake, sleeper):
        tape.do(guest, (tape.STORE, 40000, 5), (tape.STORE, 50 * 65536, 6))
    sleeper.suspend(snapshots, who)
    fill(directory / "filler")
    found = snapshots.find(who)
    assert found is not None
    sleeper = Instance.wake(module, tape.LIMITS, wat.RecordingHost(), found)
    for number in range(2):
        for guest in (awake, sleeper):
            tape.do(guest, *((tape.STORE, page * 65536 + 12, page) for page in range(20, 100)))
        assert tape.state(sleeper)[200:] == tape.state(awake)[200:]
        try:
            sleeper.suspend(snapshots, who)
        except SnapshotFailed as failed:
            assert (failed.number, number) == (errno.ENOSPC, 0)  # noqa: PT017
        (directory / "filler").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
