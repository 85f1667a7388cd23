"""The runtime in the installer's image, a containerd shim that runs Wasm, and a module for it: built once.

In: the Cargo project in ``runtime``, the Go program in ``hello``. Out: a directory with the program, its crates and
their licences, and a module, in the cache. Called by the build of the installer's image, by releases, by tests of real
nodes and by `trellis dev tools --real-node`. Needs a Rust toolchain, a C compiler, and apt-get for a few packages that
are unpacked into the cache. For another architecture, apt-get provides the C compiler, and rustup the standard library.
Invariant: the program is statically linked, so that it runs on a node of any distribution; the same sources give the
same bytes on a machine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trellis_dev.localcluster import debian
from trellis_dev.localcluster.building import How, LoggedBuild, make_once
from trellis_dev.localcluster.crates import lacking, source_file, sources_digest
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.gotoolchain import environment, go_program
from trellis_dev.localcluster.node_images import ARCHITECTURES, architecture
from trellis_dev.localcluster.paths import cache_root

SHIM: Final = "containerd-shim-wasi-v1"
IN_IMAGE: Final = "/opt/trellis-runtime"
"""Directory of the shim in the installer's image; the default Shim of the chart has this path, too."""
PROJECT: Final = "runtime"
_SOURCES: Final = ("Cargo.toml", "crates.lock", "build.sh", "src/main.rs")
_PACKAGES: Final = ("protobuf-compiler", "libprotoc32", "libprotobuf32", "libprotobuf-dev")
_SECCOMP: Final = "libseccomp-dev"
_HINT: Final = (
    "The runtime is built once, from crates: this needs a crate registry, a C compiler and 4 GB of free disk."
)


def missing(platform: str | None = None) -> str | None:
    """Return in one line why this machine cannot build the runtime; None if it can, or it is built."""
    on = platform or architecture()
    if _path(on).exists():
        return None
    programs = ("cargo", "cc", "pkg-config", "apt-get", "dpkg")
    lacks = lacking(programs if on == architecture() else (*programs, "rustup"))
    return f"the Wasm runtime cannot be built here; missing: {', '.join(lacks)}" if lacks else None


def runtime(how: How, platform: str | None = None) -> Path:
    """Return the directory with the shim, ``crates.lock``, ``metadata.json`` and ``licenses``; build it if needed.

    ``platform``: its architecture as in image platforms (``amd64``, ``arm64``); by default that of this machine.

    Raises:
        ToolError: a build dependency is missing, or the build fails. AbortedError: stop was requested.
    """
    on = platform or architecture()
    reason = missing(on)
    if reason is not None:
        raise ToolError(reason)
    step = f"build {SHIM}" + (f" for {on}" if on != architecture() else "")
    return make_once(_path(on), step, how, lambda target, log: _build(target, log, step, how, on))


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


def _build(target: Path, log: Path, step: str, how: How, on: str) -> None:
    tools = debian.unpacked("wasm-shim", _PACKAGES, how)
    seccomp = debian.unpacked(f"{_SECCOMP}-{on}", [_SECCOMP], how, None if on == architecture() else on)
    variables = {
        "PROTOC": str(tools / "usr/bin/protoc"),
        "PROTOC_INCLUDE": str(tools / "usr/include"),
        "LD_LIBRARY_PATH": _libraries(tools, architecture()),
        "LIBSECCOMP_LIB_PATH": _libraries(seccomp, on),
        "TRIPLE": _triple(on),
    }
    if on != architecture():
        variables = _cross(on, variables, how)
    work = target.with_name(f".{target.name}.build")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source_file(PROJECT), work)
    build = LoggedBuild(work, log, how.abort, {**os.environ, **variables}, _HINT)
    try:
        build.run(["/bin/sh", "build.sh", str(target)], lambda line: how.progress.note(step, line.strip()))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _cross(on: str, variables: Mapping[str, str], how: How) -> dict[str, str]:
    """Return the variables of a build for another architecture, whose compiler and standard library are fetched.

    The compiler finds its own files beside it, so it needs no installation.
    """
    triple = _triple(on)
    prefix = f"{_machine(on)}-linux-gnu"
    root = debian.installed(f"compiler-{on}", [f"gcc-{prefix}", f"libc6-dev-{on}-cross"], how)
    rustup = ["rustup", "target", "add", triple]
    done = subprocess.run(rustup, capture_output=True, text=True, check=False)  # noqa: S603 - fixed arguments
    if done.returncode:
        raise ToolError(f"`{' '.join(rustup)}` failed: {done.stderr.strip()}")
    compiler = str(root / f"usr/bin/{prefix}-gcc")
    return {
        **variables,
        "LD_LIBRARY_PATH": f"{variables['LD_LIBRARY_PATH']}:{_libraries(root, architecture())}",
        "TARGET_CC": compiler,
        "TARGET_AR": str(root / f"usr/bin/{prefix}-ar"),
        f"CARGO_TARGET_{triple.upper().replace('-', '_')}_LINKER": compiler,
    }


def _libraries(root: Path, on: str) -> str:
    """Return the directory of the libraries for an architecture in unpacked packages."""
    return str(root / f"usr/lib/{_machine(on)}-linux-gnu")


def _triple(on: str) -> str:
    """Return the target of Rust for an architecture."""
    return f"{_machine(on)}-unknown-linux-gnu"


def _machine(on: str) -> str:
    """Return an architecture as `uname -m` reports it."""
    return next((machine for machine, name in ARCHITECTURES.items() if name == on), on)


def _path(on: str) -> Path:
    """Return the cache path of the runtime; its name contains a digest of the sources."""
    return cache_root() / "bin" / f"wasi-runtime-{on}-{sources_digest(source_file(PROJECT), _SOURCES)}"
