"""Builds programs from crates: exact versions with checksums, and no registry address in this repository.

In: a Cargo project, its ``crates.lock`` (a Cargo.lock without the registry lines). Out: programs. Called by the builds
of shims, wadm and wasmCloud hosts, and by tests with their own programs. Invariant: the crates are those of
``crates.lock``; the registry address in Cargo.lock is that of the local cargo configuration.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from trellis_dev.localcluster.building import How, LoggedBuild
from trellis_dev.localcluster.errors import ToolError

_SOURCE: Final = re.compile(r"^source = .*$", re.MULTILINE)


def source_file(*names: str) -> Path:
    """Return a file or directory of this package."""
    return Path(str(resources.files("trellis_dev.localcluster").joinpath(*names)))


def sources_digest(project: Path, files: Sequence[str]) -> str:
    """Return a digest of 12 characters over these files of a project."""
    digest = hashlib.sha256()
    for path in files:
        digest.update((project / path).read_bytes())
    return digest.hexdigest()[:12]


def lacking(programs: Sequence[str]) -> list[str]:
    """Return the programs that are not on the PATH."""
    return [name for name in programs if shutil.which(name) is None]


@dataclass(frozen=True)
class CrateBuild:
    """One build: a project, copied into a temporary directory."""

    project: Path
    work: Path
    log: Path
    step: str
    hint: str
    how: How

    def run(self, options: Sequence[str], variables: Mapping[str, str] | None = None) -> Path:
        """Run ``cargo build --locked`` with these options; return the target directory of cargo, inside ``work``.

        Raises:
            ToolError: the build failed; with the end of its log. AbortedError: stop was requested.
        """
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.project, self.work)
        target = self.work / "target"
        environment = {**os.environ, **(variables or {}), "CARGO_TARGET_DIR": str(target)}
        build = LoggedBuild(self.work, self.log, self.how.abort, environment, self.hint)
        write_lock(self.work, build)
        argv = ["cargo", "build", "--locked", *options]
        build.run(argv, lambda line: self.how.progress.note(self.step, line.strip()))
        return target

    def clean(self) -> None:
        """Remove the build directory."""
        shutil.rmtree(self.work, ignore_errors=True)


def write_lock(work: Path, build: LoggedBuild) -> None:
    """Write the Cargo.lock of a project from its ``crates.lock``, with the registry of the local cargo configuration.

    Raises:
        ToolError: cargo fails, or writes an unsupported lock format.
    """
    probe = work / "probe"
    (probe / "src").mkdir(parents=True)
    (probe / "src" / "lib.rs").touch()
    text = '[package]\nname = "probe"\nversion = "0.0.0"\n\n[workspace]\n\n[dependencies]\nanyhow = "1"\n'
    (probe / "Cargo.toml").write_text(text, encoding="utf-8")
    build.run(["cargo", "generate-lockfile", "--manifest-path", str(probe / "Cargo.toml")])
    source = _SOURCE.search((probe / "Cargo.lock").read_text(encoding="utf-8"))
    if source is None:
        raise ToolError("cargo wrote a Cargo.lock without a source: unsupported format")
    lock = (work / "crates.lock").read_text(encoding="utf-8")
    (work / "Cargo.lock").write_text(re.sub(r"^checksum = ", f"{source[0]}\nchecksum = ", lock, flags=re.MULTILINE))
