"""Chromium from the packages of Debian, unpacked into the cache: the browser for tests of the console page.

In: nothing. Out: a program and its environment. Called by `trellis dev page --browser` and tests.
Invariant: nothing is installed; a Chromium that is installed on this machine has precedence.
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
    """Return in one line why this machine cannot provide a browser; None if it can."""
    if shutil.which("chromium") is not None:
        return None
    lacks = [program for program in ("apt-get", "dpkg") if shutil.which(program) is None]
    return f"Chromium is not installed and cannot be unpacked; missing: {', '.join(lacks)}" if lacks else None


def chromium(how: How) -> Browser:
    """Return a Chromium that runs headless.

    Raises:
        ToolError: it is not installed and its packages cannot be downloaded.
    """
    if (on_path := shutil.which("chromium")) is not None:
        return Browser(Path(on_path), dict(os.environ))
    root = debian.installed("chromium", _PACKAGES, how)
    # Includes subdirectories of the library path: some programs find their libraries by an absolute path.
    folders = sorted({str(path.parent) for path in (root / "usr/lib").rglob("*.so*")})
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(folders)}
    # Without the wrapper script of the package, which reads system-wide settings.
    return Browser(root / "usr/lib/chromium/chromium", environment)
