"""A measurement of Trellis under load: the machine, the required programs, a directory for its logs.

In: what to run in a directory. Out: its result, and the machine on stdout. Called by ``run``, ``floor``, ``profile``.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from machine import describe
from trellis_dev.localcluster import lattice_servers

T = TypeVar("T")


def measure(name: str, run: Callable[[Path], Coroutine[Any, Any, T]], *, keep: bool = False) -> T | None:
    """Run in a new directory; return None, and print the reason, if a required program is missing."""
    print(f"machine: {describe()}", flush=True)
    if (reason := lattice_servers.missing()) is not None:
        print(f"not measured: {reason}")
        return None
    # An end of this process ends the processes that it started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    directory = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    try:
        return asyncio.run(run(directory))
    finally:
        if keep:
            print(f"logs: {directory}", flush=True)
        else:
            shutil.rmtree(directory, ignore_errors=True)
