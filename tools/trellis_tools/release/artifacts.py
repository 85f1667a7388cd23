"""Builds the Python packages and the chart of a release, as files and as OCI artifacts.

In: a checkout with the version of the release. Out: wheels, source distributions, the archive of the chart, and their
OCI layouts. Called by the command. Invariant: the same checkout and time give the same bytes: hatchling uses
SOURCE_DATE_EPOCH, and the archive that Helm writes is rewritten without the times of its files.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from trellis_tools import chart, chart_readme
from trellis_tools.release.errors import ReleaseError
from trellis_tools.release.layout import Entry, Layout, compressed, write_archive
from trellis_tools.release.oci import CHART_CONFIG, CHART_LAYER, Document, chart_manifest, document, files_manifest
from trellis_tools.release.plan import (
    CHART,
    CHART_NAME,
    PACKAGES_NAME,
    Release,
    image_values,
    pinned_values,
    runtime_values,
)
from trellis_tools.release.programs import run

_FILE: Final = "application/octet-stream"
_PROJECTS: Final = (".", "devtools")


@dataclass(frozen=True)
class Artifact:
    """An artifact for a registry: its repository below the registry, its layout, and the digest that a tag names.

    ``sboms``: for an image, files by the digest of the manifest of a platform.
    """

    name: str
    layout: Path
    digest: str
    sboms: Mapping[str, Path] = field(default_factory=dict)


def build_packages(release: Release, source: Path, out: Path) -> Artifact:
    """Build wheels and source distributions into ``out/python``; return them as an artifact.

    Raises:
        ReleaseError: a build failed.
    """
    folder = out / "python"
    folder.mkdir(parents=True)
    for project in _PROJECTS:
        run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)],
            cwd=source / project,
            environment={"SOURCE_DATE_EPOCH": str(release.epoch)},
        )
    layout = Layout(out / "oci" / PACKAGES_NAME)
    files = {file.name: layout.add_file(file, _FILE) for file in sorted(folder.iterdir())}
    annotations = release.annotations(PACKAGES_NAME, "Wheels and source distributions of the trellis command")
    return _closed(PACKAGES_NAME, layout, *files_manifest(files, annotations))


def build_chart(
    release: Release, source: Path, out: Path, digests: Mapping[str, str], runtimes: Mapping[str, str]
) -> Artifact:
    """Build the archive of the chart into ``out``, with images by digest; return it as an artifact.

    ``digests``: of the images, by their key; ``runtimes``: SHA-256 of the runtime, by architecture.

    Raises:
        ReleaseError: the chart has no value for an image, or Helm refused it.
    """
    values = source / CHART / "values.yaml"
    text = values.read_text(encoding="utf-8")
    built = image_values(release, digests) | runtime_values(runtimes)
    values.write_text(pinned_values(text, built), encoding="utf-8")
    for generator in (chart, chart_readme):
        generator.main([str(source)])
    target = out / f"trellis-{release.version.text}.tgz"
    with tempfile.TemporaryDirectory() as folder:
        run([helm(), "package", str(source / CHART), "--destination", folder])
        repack(Path(folder) / target.name, target, release.epoch)
    metadata = yaml.safe_load((source / CHART / "Chart.yaml").read_text(encoding="utf-8"))
    layout = Layout(out / "oci" / CHART_NAME)
    config = document(metadata, CHART_CONFIG)
    annotations = release.annotations(metadata["name"], metadata["description"])
    archive = layout.add_file(target, CHART_LAYER)
    return _closed(CHART_NAME, layout, config, chart_manifest(config, archive, annotations))


def repack(source: Path, target: Path, epoch: int) -> None:
    """Rewrite a compressed archive with this time for all entries, the metadata of a chart first.

    Raises:
        ReleaseError: an entry is neither a file nor a directory.
    """
    entries: dict[str, Entry] = {}
    with tarfile.open(source) as archive:
        for head in archive:
            file = archive.extractfile(head)
            if file is None:
                raise ReleaseError(f"{source.name} has {head.name}, which is not a file")
            entries[head.name] = Entry(0o644, content=file.read())
    ordered = sorted(entries.items(), key=lambda item: (not item[0].endswith("/Chart.yaml"), item[0]))
    with target.open("wb") as file, compressed(file) as stream:
        write_archive(stream, dict(ordered), epoch)


def helm() -> str:
    """Return the path of Helm: of this environment, else on the PATH.

    Raises:
        ReleaseError: neither has it.
    """
    beside = Path(sys.executable).with_name("helm")
    found = str(beside) if beside.exists() else shutil.which("helm")
    if found is None:
        raise ReleaseError("helm is missing: add it to the PATH")
    return found


def summary(release: Release, artifacts: Mapping[str, Artifact]) -> str:
    """Return the references of artifacts as JSON."""
    rows = {
        key: {
            "reference": release.pinned(item.name, item.digest),
            "tag": release.tagged(item.name),
            **({"manifests": sorted(item.sboms)} if item.sboms else {}),
        }
        for key, item in artifacts.items()
    }
    head = {"version": release.version.text, "commit": release.commit, "created": release.created}
    return json.dumps({**head, "artifacts": rows}, indent=2, sort_keys=True) + "\n"


def _closed(name: str, layout: Layout, config: Document, manifest: Document) -> Artifact:
    layout.add(config)
    top = layout.add(manifest)
    layout.close(top)
    return Artifact(name, layout.root, top.digest)
