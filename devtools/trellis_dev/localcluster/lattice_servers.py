"""wadm and a wasmCloud host, the published crates: built once.

In: the Cargo project in ``wasmcloud``. Out: two programs in the cache. Called by `up` of clusters with lattices,
`trellis dev tools --wadm` and tests. Needs a Rust toolchain and a C compiler.
Invariant: both programs are built together from one lock, and are there together or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trellis_dev.localcluster.building import How, make_once
from trellis_dev.localcluster.crates import CrateBuild, lacking, source_file, sources_digest
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.paths import cache_root

WADM: Final = "wadm"
HOST: Final = "wasmcloud-host"
_PROJECT: Final = "wasmcloud"
_SOURCES: Final = ("Cargo.toml", "crates.lock", f"src/bin/{WADM}.rs", f"src/bin/{HOST}.rs")
_HINT: Final = "wadm and the host are built once, from crates: it needs a crate registry, a C compiler, 4 GB of disk."


def missing() -> str | None:
    """Return what keeps this machine from building them, in one line; None if nothing does, or they are built."""
    if _path().exists():
        return None
    lacks = lacking(("cargo", "cc"))
    return f"wadm and a wasmCloud host cannot be built here; missing: {', '.join(lacks)}" if lacks else None


def lattice_servers(how: How) -> dict[str, Path]:
    """Return the programs :data:`WADM` and :data:`HOST`, building them if they are not in the cache.

    Raises:
        ToolError: if something to build them with is missing, or the build fails. AbortedError: if asked to stop.
    """
    reason = missing()
    if reason is not None:
        raise ToolError(reason)
    step = f"build {WADM} and {HOST}"
    programs = make_once(_path(), step, how, lambda target, log: _build(target, log, step, how))
    return {name: programs / name for name in (WADM, HOST)}


def _build(target: Path, log: Path, step: str, how: How) -> None:
    build = CrateBuild(source_file(_PROJECT), cache_root() / "build" / f"{_path().name}.work", log, step, _HINT, how)
    try:
        built = build.run(["--bins"])
        target.mkdir()
        for name in (WADM, HOST):
            (built / "debug" / name).rename(target / name)
    finally:
        build.clean()


def _path() -> Path:
    """Return where the cache keeps both: a directory whose name changes with their sources."""
    return cache_root() / "bin" / f"wasmcloud-{sources_digest(source_file(_PROJECT), _SOURCES)}"
