"""Chromium from Debian's packages, unpacked into the cache: the browser in which the console's page is tested.

In: nothing. Out: a program, and the environment it runs in. Called by `trellis dev page --browser` and tests.
Invariant: nothing is installed; a Chromium that this machine has already is taken first.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trellis_dev.localcluster import debian
from trellis_dev.localcluster.building import How

_PACKAGES: Final = ("chromium", "fonts-dejavu-core")


@dataclass(frozen=True)
class Browser:
    """A program and its environment."""

    program: Path
    environment: dict[str, str]


def missing() -> str | None:
    """Return what keeps this machine from having a browser, in one line; None if nothing does."""
    if shutil.which("chromium") is not None:
        return None
    lacks = [program for program in ("apt-get", "dpkg") if shutil.which(program) is None]
    return f"there is no Chromium, and none can be had; missing: {', '.join(lacks)}" if lacks else None


def chromium(how: How) -> Browser:
    """Return a Chromium that runs without a screen.

    Raises:
        ToolError: if there is none and its packages cannot be had.
    """
    if (on_path := shutil.which("chromium")) is not None:
        return Browser(Path(on_path), dict(os.environ))
    root = debian.installed("chromium", _PACKAGES, how)
    # Also below the usual place: libraries of their own that programs find by a path which is not ours.
    folders = sorted({str(path.parent) for path in (root / "usr/lib").rglob("*.so*")})
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(folders)}
    # Without the script of its package, which looks for settings of the system's.
    return Browser(root / "usr/lib/chromium/chromium", environment)
