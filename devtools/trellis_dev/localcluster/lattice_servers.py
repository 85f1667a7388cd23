"""wadm and a wasmCloud host, the published crates: built once.

In: the Cargo project in ``wasmcloud``. Out: two programs in the cache. Called by `up` of clusters with lattices,
`trellis dev tools --wadm` and tests. Needs a Rust toolchain and a C compiler.
Invariant: both programs are built together from one lock; the cache has both or neither.
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
_HINT: Final = "wadm and the host are built once, from crates: this needs a crate registry, a C compiler, 4 GB of disk."


def missing() -> str | None:
    """Return in one line why this machine cannot build them; None if it can, or they are built."""
    if _path().exists():
        return None
    lacks = lacking(("cargo", "cc"))
    return f"wadm and a wasmCloud host cannot be built here; missing: {', '.join(lacks)}" if lacks else None


def lattice_servers(how: How) -> dict[str, Path]:
    """Return the programs :data:`WADM` and :data:`HOST`; build them if they are not in the cache.

    Raises:
        ToolError: a build dependency is missing, or the build fails. AbortedError: stop was requested.
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
    """Return the cache directory of both programs; its name contains a digest of their sources."""
    return cache_root() / "bin" / f"wasmcloud-{sources_digest(source_file(_PROJECT), _SOURCES)}"
