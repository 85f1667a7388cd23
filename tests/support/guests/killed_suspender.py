"""A process that is killed while it puts a guest to disk. Arguments: directory, which write, how many bytes of it.

It suspends a guest that is all ones, wakes it, makes it all twos, and is killed in a write of the second suspending.
With -1 as the number it goes on for ever, with threes, fours, …, until another user kills it.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from pathlib import Path

from controller_host.guest.instance import Instance
from controller_host.guest.modules import Modules
from controller_host.guest.pages import PAGE
from controller_host.guest.snapshots import Identity, Snapshots
from support.guests import tape, wat

MARKS = [*range(300, 65000, 2 * PAGE), *range(2 * 65536 + 8, 3 * 65536, PAGE)]
"""Where the guest keeps its number: on pages apart from each other, and on some that are not."""


def who(sha256: str, engine: str) -> Identity:
    return Identity("killed", sha256, engine, "configured")


def numbered(instance: Instance, number: int) -> None:
    """Make the guest all ``number``."""
    tape.do(instance, *((tape.STORE, mark, number) for mark in MARKS), (tape.SET_I32, number, 0))


def numbers(instance: Instance) -> set[int]:
    """Return the numbers the guest has: one, unless it was torn."""
    memory = tape.state(instance)
    return {int.from_bytes(memory[at : at + 4], "little") for at in [*MARKS, tape.GLOBALS_AT]}


def _kill_in_write(number: int, length: int) -> None:
    real, count = os.pwrite, itertools.count()

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        if next(count) != number:
            return real(descriptor, data, offset)
        real(descriptor, memoryview(data)[:length], offset)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    os.pwrite = pwrite


def main() -> None:
    directory, write, length = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    modules = Modules(directory / "modules")
    module = tape.module(modules)
    identity = who(module.sha256, modules.engine.key)
    snapshots = Snapshots(directory / "snapshots")
    guest = tape.boot(module)
    numbered(guest, 1)
    for number in itertools.count(2):
        guest.suspend(snapshots, identity)
        print(number - 1, flush=True)  # noqa: T201 (whoever kills this waits for it)
        found = snapshots.find(identity)
        assert found is not None
        guest = Instance.wake(module, tape.LIMITS, wat.RecordingHost(), found)
        numbered(guest, number)
        if write >= 0:
            _kill_in_write(write, length)


if __name__ == "__main__":
    main()
