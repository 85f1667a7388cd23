"""What a term has open on disk, and the threads that work there.

In: settings. Out: guests with their modules and snapshots, what is known of their progress, pools of threads. Called by
``app``. Invariant: one process at a time has the directory, and what of it cannot be used names its setting.
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
"""Of a thread that runs guests: the engine lets a guest have half of one MiB, and the host's calls come on top."""


@dataclass(frozen=True, slots=True)
class Disk:
    """What a term has open on disk, and the threads that work there."""

    guests: LocalGuests
    progress: Progress
    pool: ThreadPoolExecutor
    compiling: ThreadPoolExecutor

    def close(self) -> None:
        """Let go of everything; threads that still run a guest are left to end by themselves."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.compiling.shutdown(wait=False, cancel_futures=True)
        self.progress.close()
        self.guests.close()


def check_directory(settings: Settings) -> None:
    """Make the directory of the data.

    Raises:
        SettingsError: it cannot be used.
    """
    directory = settings.controller_data_dir
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise _unusable(settings, "this account may not write there")
    except OSError as error:
        raise _unusable(settings, error.strerror or str(error)) from error


def _unusable(settings: Settings, why: str) -> SettingsError:
    directory = settings.controller_data_dir
    return SettingsError(f"TRELLIS_CONTROLLER_DATA_DIR: has {directory}, needs a directory that can be used: {why}")


def open_disk(
    settings: Settings,
    told: Callable[[str], None],
    timings: Timings = Timings(),  # noqa: B008 - frozen
) -> Disk:
    """Open the directory of the data; ``told`` hears whether the engine of guests could be loaded, once it is needed.

    Raises:
        SettingsError: it cannot be used.
    """
    directory = settings.controller_data_dir
    try:
        guests = LocalGuests(directory, compile_bounds(settings), told, timings)
        try:
            progress = Progress(directory, timings.disk)
        except OSError:
            guests.close()
            raise
    except OSError as error:
        raise _unusable(settings, error.strerror or str(error)) from error
    # What counts is what is set when a thread starts, which a pool does late: so it stays set. Without it a thread has
    # what the C library gives, 128 KiB with musl.
    threading.stack_size(STACK_BYTES)
    pool = ThreadPoolExecutor(settings.controller_threads, thread_name_prefix="guest")
    compiling = ThreadPoolExecutor(COMPILING, thread_name_prefix="compile")
    return Disk(guests, progress, pool, compiling)


def compile_bounds(settings: Settings) -> CompileBounds:
    """Return what compiling a module may take."""
    return CompileBounds(settings.controller_compile_memory, max(1, round(settings.controller_compile_cpu)))
