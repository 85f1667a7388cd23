"""Builds a release of the current commit, and pushes, signs and verifies it: ``make release``.

In: a version, optionally a registry and a key of cosign, the commit of a git checkout. Out: a directory with all files
of the release, artifacts in the registry, and their references on standard output. Exit status: 0, or 1 with the
reason. Uncommitted changes are not released.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final

from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.errors import LocalClusterError
from trellis_dev.localcluster.page import build_page
from trellis_dev.localcluster.progress import Progress, on_stderr, stepping
from trellis_tools.release.artifacts import Artifact, build_chart, build_packages, summary
from trellis_tools.release.errors import ReleaseError
from trellis_tools.release.images import build_images
from trellis_tools.release.plan import DEFAULT_REGISTRY, SOURCE, STAMPED, Release, Version, provenance, stamped
from trellis_tools.release.programs import run, run_bytes
from trellis_tools.release.publish import Key, Publisher

_BUILDER: Final = f"{SOURCE}/blob/main/docs/release-process.md#make-a-release"
_SUMS: Final = "SHA256SUMS"


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m trellis_tools.release", description=__doc__)
    parser.add_argument("version", nargs="?", default="", help="version, for example 1.2.3 or 1.2.3-rc.1")
    parser.add_argument("--registry", default="", help="registry to push to; without one nothing is pushed")
    parser.add_argument("--key", type=Path, help="private key of cosign; needed to push")
    parser.add_argument("--password-file", type=Path, help="file with the password of the key")
    parser.add_argument("--output", type=Path, default=Path("build/release"), help="directory of the files")
    parser.add_argument("--builder", default=_BUILDER, help="URI of the build platform, for the provenance")
    arguments = parser.parse_args(argv)
    try:
        _check_variables(arguments)
        release = _release(arguments.version, arguments.registry or DEFAULT_REGISTRY)
        out = arguments.output.resolve() / release.version.text
        with on_stderr() as progress:
            publisher: Publisher | None = None
            if arguments.registry:
                key = Key(arguments.key, arguments.password_file)
                publisher = Publisher(release, key, out / "cosign.pub", progress)
            # A wrong key or password ends the command before the build, which takes long and replaces the former files.
            public_key = publisher.read_public_key() if publisher else ""
            artifacts = _build(release, out, arguments.builder, How(progress, threading.Event()))
            if publisher:
                publisher.public.write_text(public_key, encoding="ascii")
                _publish(publisher, out, artifacts)
    except (ReleaseError, LocalClusterError, OSError) as error:
        sys.stderr.write(f"release: {error}\n")
        return 1
    sys.stdout.write((out / "release.json").read_text(encoding="utf-8"))
    return 0


def _check_variables(arguments: argparse.Namespace) -> None:
    """Check that the variables of make that belong together are set.

    Raises:
        ReleaseError: one is missing; names it as in make.
    """
    if not arguments.version:
        raise ReleaseError("VERSION is missing, for example VERSION=1.2.3 or VERSION=1.2.3-rc.1")
    if arguments.registry and arguments.key is None:
        raise ReleaseError("KEY is missing: a pushed release is signed; `cosign generate-key-pair` creates a key")
    if arguments.key is not None and not arguments.registry:
        raise ReleaseError("REGISTRY is missing: only a pushed release is signed, so KEY would have no effect")


def _release(version: str, registry: str) -> Release:
    """Return the release of the current commit.

    Raises:
        ReleaseError: a value is invalid, or this is not a git checkout.
    """
    Version.parse(version)
    commit = run(["git", "rev-parse", "HEAD"]).strip()
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or run(["git", "show", "--no-patch", "--format=%ct", commit]).strip()
    return Release.parse(version, registry, commit, epoch)


def _build(release: Release, out: Path, builder: str, how: How) -> dict[str, Artifact]:
    """Build everything into an empty directory; return the artifacts by key.

    Raises:
        ReleaseError, ToolError: a step failed.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="trellis-release-", dir=out.parent) as folder:
        source, work = Path(folder) / "source", Path(folder) / "work"
        _check_out(release, source, how.progress)
        build_page(source, how)
        with stepping(how.progress, "build the Python packages"):
            packages = build_packages(release, source, out)
        images = build_images(release, source, work, out, how)
        with stepping(how.progress, "build the chart"):
            digests = {key: item.digest for key, item in images.artifacts.items()}
            chart = build_chart(release, source, out, digests, images.runtimes)
    artifacts = {**images.artifacts, "chart": chart, "packages": packages}
    predicate = provenance(release, images.materials, builder)
    (out / "provenance.json").write_text(json.dumps(predicate, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    (out / "release.json").write_text(summary(release, artifacts), encoding="utf-8")
    (out / _SUMS).write_text(_sums(out), encoding="utf-8")
    return artifacts


def _check_out(release: Release, source: Path, progress: Progress) -> None:
    """Write the files of the commit with the version of the release."""
    with stepping(progress, f"check out {release.commit[:12]}"):
        if run(["git", "status", "--porcelain", "--untracked-files=no"]):
            progress.note(f"check out {release.commit[:12]}", "uncommitted changes are not released")
        source.mkdir()
        files = run_bytes(["git", "archive", "--format=tar", release.commit])
        run(["tar", "--extract", "--directory", str(source)], stdin=files)
        for file in STAMPED:
            path = source / file
            path.write_text(stamped(file, path.read_text(encoding="utf-8"), release.version), encoding="utf-8")


def _publish(publisher: Publisher, out: Path, artifacts: dict[str, Artifact]) -> None:
    """Push all artifacts, then sign and verify them."""
    publisher.sign_file(out / _SUMS)
    for artifact in artifacts.values():
        publisher.push(artifact)
    for artifact in artifacts.values():
        publisher.sign(artifact, out / "provenance.json")
        publisher.verify(artifact, out / "provenance.json")


def _sums(out: Path) -> str:
    """Return the checksums of all files of a release outside of OCI layouts, in the format of sha256sum."""
    files = sorted(path for path in out.rglob("*") if path.is_file() and path.relative_to(out).parts[0] != "oci")
    rows = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out).as_posix()}\n" for path in files]
    return "".join(rows)


if __name__ == "__main__":
    sys.exit(main())
