"""Data directory and thread pools of a leadership term.

In: settings. Out: guests with their modules and snapshots, their progress, thread pools. Called by ``app``. Invariant:
one process at a time uses the directory; an error of the directory names its setting.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from controller_host.guest.limits import CompileBounds
from controller_host.module.preparing import COMPILING
from controller_host.scheduler.guests import LocalGuests
from controller_host.settings import Settings
from controller_host.state.progress import Progress
from controller_host.timings import Timings
from trellis.config.settings import SettingsError

STACK_BYTES: Final = 4 * 2**20
"""Stack size of a thread that runs guests: 512 KiB for the guest, in addition to the host's functions."""


@dataclass(frozen=True, slots=True)
class Disk:
    """Open files and thread pools of a leadership term."""

    guests: LocalGuests
    progress: Progress
    pool: ThreadPoolExecutor
    compiling: ThreadPoolExecutor

    def close(self) -> None:
        """Close all files and pools; threads that still run a guest end by themselves."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.compiling.shutdown(wait=False, cancel_futures=True)
        self.progress.close()
        self.guests.close()


def check_directory(settings: Settings) -> None:
    """Create the data directory.

    Raises:
        SettingsError: the directory cannot be used.
    """
    directory = settings.controller_data_dir
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise _unusable(settings, "this account has no write permission")
    except OSError as error:
        raise _unusable(settings, error.strerror or str(error)) from error


def _unusable(settings: Settings, error: str) -> SettingsError:
    directory = settings.controller_data_dir
    return SettingsError(f"TRELLIS_CONTROLLER_DATA_DIR: has {directory}, needs a writable directory: {error}")


def open_disk(
    settings: Settings,
    report: Callable[[str], None],
    timings: Timings = Timings(),  # noqa: B008 - frozen
) -> Disk:
    """Open the data directory; ``report`` is called with "" or the error when the engine of guests is loaded.

    Raises:
        SettingsError: the directory cannot be used.
    """
    directory = settings.controller_data_dir
    try:
        guests = LocalGuests(directory, compile_bounds(settings), report, timings)
        try:
            progress = Progress(directory, timings.disk)
        except OSError:
            guests.close()
            raise
    except OSError as error:
        raise _unusable(settings, error.strerror or str(error)) from error
    # The setting applies when a thread starts, which a pool delays: so it is not reset. The default of the C library
    # is 128 KiB with musl.
    threading.stack_size(STACK_BYTES)
    pool = ThreadPoolExecutor(settings.controller_threads, thread_name_prefix="guest")
    compiling = ThreadPoolExecutor(COMPILING, thread_name_prefix="compile")
    return Disk(guests, progress, pool, compiling)


def compile_bounds(settings: Settings) -> CompileBounds:
    """Return the limits of the compilation of a module."""
    return CompileBounds(settings.controller_compile_memory, max(1, round(settings.controller_compile_cpu)))
