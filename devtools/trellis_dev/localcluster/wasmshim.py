"""The runtime in the installer's image, a containerd shim that runs Wasm, and a module for it: built once.

In: the Cargo project in ``runtime``, the Go program in ``hello``. Out: a directory with the program, its crates and
their licences, and a module, in the cache. Called by the build of the installer's image, by tests of real nodes and by
`trellis dev tools --real-node`. Needs a Rust toolchain, a C compiler, and apt-get for a few packages that are unpacked
into the cache.
Invariant: the program is statically linked, so that it runs on a node of any distribution; the same sources give the
same bytes on a machine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

from trellis_dev.localcluster import debian
from trellis_dev.localcluster.building import How, LoggedBuild, make_once
from trellis_dev.localcluster.crates import lacking, source_file, sources_digest
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.gotoolchain import environment, go_program
from trellis_dev.localcluster.paths import cache_root

SHIM: Final = "containerd-shim-wasi-v1"
IN_IMAGE: Final = "/opt/trellis-runtime"
"""Directory of the shim in the installer's image; the default Shim of the chart has this path, too."""
PROJECT: Final = "runtime"
_SOURCES: Final = ("Cargo.toml", "crates.lock", "build.sh", "src/main.rs")
_PACKAGES: Final = ("libseccomp-dev", "protobuf-compiler", "libprotoc32", "libprotobuf32", "libprotobuf-dev")
_HINT: Final = (
    "The runtime is built once, from crates: this needs a crate registry, a C compiler and 4 GB of free disk."
)


def missing() -> str | None:
    """Return in one line why this machine cannot build the runtime; None if it can, or it is built."""
    if _path().exists():
        return None
    lacks = lacking(("cargo", "cc", "pkg-config", "apt-get", "dpkg"))
    return f"the Wasm runtime cannot be built here; missing: {', '.join(lacks)}" if lacks else None


def runtime(how: How) -> Path:
    """Return the directory with the shim, ``crates.lock``, ``metadata.json`` and ``licenses``; build it if needed.

    Raises:
        ToolError: a build dependency is missing, or the build fails. AbortedError: stop was requested.
    """
    reason = missing()
    if reason is not None:
        raise ToolError(reason)
    step = f"build {SHIM}"
    return make_once(_path(), step, how, lambda target, log: _build(target, log, step, how))


def shim(how: How) -> Path:
    """Return the program of the shim.

    Raises:
        ToolError: as :func:`runtime`.
    """
    return runtime(how) / SHIM


def hello_module(how: How) -> Path:
    """Return the module that prints ``hello from wasm``.

    Raises:
        ToolError: Go is missing and cannot be installed, or the module does not compile.
    """
    source = source_file("hello", "main.go")
    name = f"hello-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.wasm"

    def make(target: Path, log: Path) -> None:
        go = go_program(how.progress)
        wasm = {**environment(go), "GOOS": "wasip1", "GOARCH": "wasm"}
        build = LoggedBuild(target.parent, log, how.abort, wasm, "The module needs only the standard library of Go.")
        build.run([str(go), "build", "-trimpath", "-ldflags=-s -w", "-o", str(target), str(source)])

    return make_once(cache_root() / "images" / name, "build hello.wasm", how, make)


def _build(target: Path, log: Path, step: str, how: How) -> None:
    root = debian.unpacked("wasm-shim", _PACKAGES, how)
    libraries = next(root.glob("usr/lib/*/libseccomp.a")).parent
    variables = {
        "PROTOC": str(root / "usr/bin/protoc"),
        "PROTOC_INCLUDE": str(root / "usr/include"),
        "LD_LIBRARY_PATH": str(libraries),
        "LIBSECCOMP_LIB_PATH": str(libraries),
    }
    work = target.with_name(f".{SHIM}.build")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source_file(PROJECT), work)
    build = LoggedBuild(work, log, how.abort, {**os.environ, **variables}, _HINT)
    try:
        build.run(["/bin/sh", "build.sh", str(target)], lambda line: how.progress.note(step, line.strip()))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _path() -> Path:
    """Return the cache path of the runtime; its name contains a digest of the sources."""
    return cache_root() / "bin" / f"wasi-runtime-{sources_digest(source_file(PROJECT), _SOURCES)}"
