"""The catalogue of known Wasm runtimes: releases with checksums, the Shim of a release, and newer releases.

Pure. In: the text of the catalogue, raw Shims. Out: releases, manifests, rows. Called by ``trellis shims``.
Invariants: each file of a release has a SHA-256; a Shim has the version of a release only if one of its sources has the
checksum of one of its files.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from trellis.provisioning.shims import ShimView

Manifest = dict[str, Any]

_WANTED: Final = re.compile(r"(?P<name>[a-z0-9]([-a-z0-9]*[a-z0-9])?)(@v?(?P<version>[0-9]+(\.[0-9]+)*))?")
_LABEL_VERSION: Final = "app.kubernetes.io/version"


class CatalogueError(ValueError):
    """A runtime or a release is not in the catalogue; the message has those that are."""


@dataclass(frozen=True, slots=True)
class File:
    """The file of a release for an architecture (``amd64``, ``arm64``), and its SHA-256."""

    arch: str
    location: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Release:
    """A version of a runtime. ``checksum``: the public source that states the checksums."""

    runtime: str
    version: str
    handler: str
    checksum: str
    files: tuple[File, ...]


@dataclass(frozen=True, slots=True)
class Runtime:
    """A known runtime; ``releases``: the newest first, at least one."""

    name: str
    summary: str
    page: str
    license: str
    releases: tuple[Release, ...]

    @property
    def newest(self) -> Release:
        """The newest release."""
        return self.releases[0]

    def document(self) -> dict[str, object]:
        """Return the runtime for JSON."""
        releases = [
            {
                "version": release.version,
                "checksum": release.checksum,
                "files": [asdict(file) for file in release.files],
            }
            for release in self.releases
        ]
        described = {"name": self.name, "summary": self.summary, "page": self.page, "license": self.license}
        return {**described, "releases": releases}


@dataclass(frozen=True, slots=True)
class Row:
    """A Shim of the cluster or a runtime of the catalogue; "" for what it does not have.

    ``version``: that of the Shim, ``newest``: that of the catalogue.
    """

    runtime: str
    newest: str
    shim: str = ""
    version: str = ""

    @property
    def outdated(self) -> bool:
        """Return True if the catalogue has a newer release than the Shim."""
        return bool(self.version and self.newest) and _order(self.newest) > _order(self.version)

    def document(self) -> dict[str, object]:
        """Return the row for JSON."""
        return {
            "shim": self.shim or None,
            "runtime": self.runtime or None,
            "version": self.version or None,
            "newest": self.newest or None,
            "outdated": self.outdated,
        }


def parse_catalogue(text: str) -> tuple[Runtime, ...]:
    """Return the runtimes of a catalogue in the format of ``catalogue.toml``, by name."""
    return tuple(_runtime(name, entry) for name, entry in sorted(tomllib.loads(text).items()))


def find_release(catalogue: Iterable[Runtime], wanted: str) -> Release:
    """Return the release of ``NAME`` (the newest) or ``NAME@VERSION``; ``v`` before the version is accepted.

    Raises:
        CatalogueError: the text has another form, or the catalogue has no such runtime or release.
    """
    known = {runtime.name: runtime for runtime in catalogue}
    match = _WANTED.fullmatch(wanted)
    if match is None:
        raise CatalogueError(f'"{wanted}" is not NAME or NAME@VERSION, as spin@0.25.1')
    runtime = known.get(match["name"])
    if runtime is None:
        raise CatalogueError(f'runtime "{match["name"]}" not found; the catalogue has: {", ".join(sorted(known))}')
    if match["version"] is None:
        return runtime.newest
    for release in runtime.releases:
        if release.version == match["version"]:
            return release
    have = ", ".join(release.version for release in runtime.releases)
    raise CatalogueError(f'release {match["version"]} of "{runtime.name}" not found; the catalogue has: {have}')


def make_fetch_strategy(release: Release) -> Manifest:
    """Return ``spec.fetchStrategy`` of a Shim that installs a release."""
    return {
        "platforms": [
            {"os": "linux", "arch": file.arch, "location": file.location, "sha256": file.sha256}
            for file in release.files
        ]
    }


def make_shim(release: Release, name: str, node_selector: Mapping[str, str], max_update: int | str) -> Manifest:
    """Return a new Shim for a release. ``node_selector`` {}: every Linux node; ``max_update``: nodes at a time."""
    spec: Manifest = {"nodeSelector": dict(node_selector)} if node_selector else {}
    return {
        "apiVersion": "runtime.spinkube.dev/v1alpha1",
        "kind": "Shim",
        "metadata": {"name": name},
        "spec": spec
        | {
            "fetchStrategy": make_fetch_strategy(release),
            "runtimeClass": {"name": name, "handler": release.handler},
            "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": max_update}},
        },
    }


def rows_of(catalogue: Sequence[Runtime], shims: Iterable[tuple[ShimView, Manifest]]) -> list[Row]:
    """Return a row for each Shim, with its manifest, by name, then one for each runtime that no Shim has.

    The version of a Shim that the catalogue does not know is that of its label ``app.kubernetes.io/version``.
    """
    releases = {file.sha256: release for runtime in catalogue for release in runtime.releases for file in release.files}
    newest = {runtime.name: runtime.newest.version for runtime in catalogue}
    rows = []
    for view, manifest in sorted(shims, key=lambda pair: pair[0].name):
        sums = [found.lower() for source in view.sources for found in (source.sha256, source.binary_sha256) if found]
        release = next((releases[item] for item in sums if item in releases), None)
        if release is not None:
            rows.append(Row(release.runtime, newest[release.runtime], view.name, release.version))
        else:
            labels = manifest["metadata"].get("labels") or {}
            rows.append(Row("", "", view.name, labels.get(_LABEL_VERSION, "")))
    present = {row.runtime for row in rows}
    return rows + [Row(name, version) for name, version in newest.items() if name not in present]


def _runtime(name: str, entry: Mapping[str, Any]) -> Runtime:
    releases = tuple(_release(name, entry["handler"], release) for release in entry["releases"])
    return Runtime(name, entry["summary"], entry["page"], entry["license"], releases)


def _release(runtime: str, handler: str, entry: Mapping[str, Any]) -> Release:
    files = tuple(File(arch, item["location"], item["sha256"]) for arch, item in sorted(entry["files"].items()))
    return Release(runtime, entry["version"], handler, entry["checksum"], files)


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
