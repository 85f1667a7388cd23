"""A containerd shim that runs Wasm modules, and a module for it: built from crates and from Go, once.

In: the Cargo project in ``shim``, the Go program in ``hello``. Out: a program and a module in the cache. Called by
tests of real nodes and `trellis dev tools --real-node`. Needs a Rust toolchain, a C compiler, and apt-get for a few
packages that are unpacked into the cache.
Invariant: the program is statically linked, so that it runs on a node of any distribution.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path
from typing import Final

from trellis_dev.localcluster import debian
from trellis_dev.localcluster.building import How, LoggedBuild, make_once
from trellis_dev.localcluster.crates import CrateBuild, lacking, source_file, sources_digest
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.gotoolchain import environment, go_program
from trellis_dev.localcluster.paths import cache_root

SHIM: Final = "containerd-shim-wasmi-v1"
_PACKAGES: Final = ("libseccomp-dev", "protobuf-compiler", "libprotoc32", "libprotobuf32", "libprotobuf-dev")
_HINT: Final = "The shim is built once, from crates: this needs a crate registry, a C compiler and 2 GB of free disk."


def missing() -> str | None:
    """Return in one line why this machine cannot build the shim; None if it can, or it is built."""
    if _shim_path().exists():
        return None
    lacks = lacking(("cargo", "cc", "pkg-config", "apt-get", "dpkg"))
    return f"the Wasm shim cannot be built here; missing: {', '.join(lacks)}" if lacks else None


def shim(how: How) -> Path:
    """Return the program of the shim; build it if it is not in the cache.

    Raises:
        ToolError: a build dependency is missing, or the build fails. AbortedError: stop was requested.
    """
    reason = missing()
    if reason is not None:
        raise ToolError(reason)
    step = f"build {SHIM}"
    return make_once(_shim_path(), step, how, lambda target, log: _build_shim(target, log, step, how))


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


def _build_shim(target: Path, log: Path, step: str, how: How) -> None:
    root = debian.unpacked("wasm-shim", _PACKAGES, how)
    libraries = next(root.glob("usr/lib/*/libseccomp.a")).parent
    triple = f"{platform.machine()}-unknown-linux-gnu"
    variables = {
        "PROTOC": str(root / "usr/bin/protoc"),
        "PROTOC_INCLUDE": str(root / "usr/include"),
        "LD_LIBRARY_PATH": str(libraries),
        "LIBSECCOMP_LINK_TYPE": "static",
        "LIBSECCOMP_LIB_PATH": str(libraries),
        f"CARGO_TARGET_{triple.upper().replace('-', '_')}_RUSTFLAGS": "-C target-feature=+crt-static",
    }
    build = CrateBuild(source_file("shim"), target.with_name(f".{SHIM}.build"), log, step, _HINT, how)
    try:
        # An explicit target, so that programs of the build itself (macros) are linked normally.
        built = build.run(["--release", "--target", triple], variables)
        (built / triple / "release" / SHIM).rename(target)
    finally:
        build.clean()


def _shim_path() -> Path:
    """Return the cache path of the shim; its name contains a digest of the sources."""
    digest = sources_digest(source_file("shim"), ("Cargo.toml", "crates.lock", "src/main.rs"))
    return cache_root() / "bin" / f"{SHIM}-{digest}"
