"""A wall clock that is wrong for a whole process, its libraries included: libfaketime, from Debian's package.

In: how wrong. Out: environment variables for the process; ``change`` steps the clock of one that runs. Called by tests
that run services by another clock than their servers have. Files keep the times they have, and monotonic clocks run on,
as when a machine's clock is set. ``support.suite.stepped_clock`` is for what Python reads, in a process of the tests'
own. In such a process ``time.sleep`` of Python fails, in whatever thread (libfaketime 0.9.10): services use it only to
end.
"""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path

import pytest

from trellis_dev.localcluster import debian
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.progress import Quiet

_NAME = "libfaketime"
_HOW = How(Quiet(), threading.Event())


class FakedClock:
    """The clock of a process, by the file that libfaketime reads each time that the clock is read."""

    def __init__(self, file: Path, wrong: str) -> None:
        self._file = file
        self.change(wrong)

    def change(self, wrong: str) -> None:
        """Set how wrong the clock is: ``+3600`` s ahead, ``-600`` s behind, ``+0 x1.1`` a tenth too fast."""
        new = self._file.with_suffix(".new")
        new.write_text(wrong)
        new.replace(self._file)

    def environment(self) -> dict[str, str]:
        """Return what a process needs for this clock."""
        return {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }


def missing() -> str | None:
    """Return what keeps this machine from having libfaketime, in one line; None if nothing does."""
    lacks = [program for program in ("apt-get", "dpkg") if shutil.which(program) is None]
    if sys.platform != "linux" or lacks:
        return f"{_NAME} is taken from Debian's package, for Linux; missing: {', '.join(lacks) or 'Linux'}"
    return None


@pytest.fixture(scope="session")
def faked_clocks() -> None:
    """Have libfaketime; skips where it cannot be had."""
    if (reason := missing()) is not None:
        pytest.skip(f"NOT RUN: {reason}")
    try:
        _library()
    except ToolError as error:
        pytest.skip(f"NOT RUN: {error}")


def _library() -> Path:
    root = debian.installed(_NAME, [_NAME], _HOW)
    (found,) = root.glob("usr/lib/*/faketime/libfaketime.so.1")
    return found
