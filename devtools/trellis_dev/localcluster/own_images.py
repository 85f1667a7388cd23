"""The images of Trellis, built from their Dockerfiles as for a release, on a local base without a registry.

In: a checkout. Out: archives in the cache, and the names of the images on nodes. uv installs the locked packages into
the context from the package index of this machine; the runtime is built before. Called by `trellis dev image` and by
tests of images. Needs root.
Invariant: the file name of an archive contains a digest of its sources; the build itself downloads nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from trellis_dev.localcluster.building import How, LoggedBuild, make_once
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.imagebuild import Recipe, build_image
from trellis_dev.localcluster.node_images import PYTHON, python_image
from trellis_dev.localcluster.page import build_page
from trellis_dev.localcluster.paths import cache_root
from trellis_dev.localcluster.wasmshim import runtime

DOCUMENTS: Final = "usr/share/doc/trellis"
"""Directory in an image with its SBOM and the licences."""

_TOOLS_LOCK: Final = "requirements-images.lock"
_DOCKERFILES: Final = "deploy/images"
_FOR_ALL: Final = ("pyproject.toml", "LICENSE", _TOOLS_LOCK, f"{_DOCKERFILES}/*.py")
_NOT_OURS: Final = frozenset({"__pycache__", "node_modules"})
_HINT: Final = "The build needs uv and a package index; nothing was kept."


@dataclass(frozen=True)
class OwnImage:
    """An image of Trellis: full name, key for Dockerfile and lock, and its sources in a checkout."""

    name: str
    key: str
    sources: tuple[str, ...]

    @property
    def dockerfile(self) -> str:
        """Path of its Dockerfile in a checkout."""
        return f"{_DOCKERFILES}/{self.key}.Dockerfile"

    @property
    def lock(self) -> str:
        """Path of the lock of its packages."""
        return f"requirements-{self.key}.lock"


SERVICES: Final = OwnImage("trellis.local/trellis:1", "services", ("services/**/*", "shared/trellis/**/*"))
INSTALLER: Final = OwnImage(
    "trellis.local/node-installer:1",
    "installer",
    (
        "services/node_installer/**/*",
        "shared/trellis/__init__.py",
        "shared/trellis/installer_api/**/*",
        "shared/trellis/oci/**/*",
        "devtools/trellis_dev/localcluster/runtime/**/*",
    ),
)


def require_checkout(directory: Path) -> None:
    """Check that images can be built from a directory.

    Raises:
        ToolError: it is not a checkout.
    """
    for image in (SERVICES, INSTALLER):
        if not (directory / image.dockerfile).is_file():
            raise ToolError(f"{directory} has no {image.dockerfile}: images are built from a checkout of Trellis")


def own_image(image: OwnImage, checkout: Path, how: How) -> Path:
    """Return the archive of an image, built once per state of its sources.

    Raises:
        ToolError: not a checkout, uv is missing, the runtime cannot be built, or the build fails; with its last output.
    """
    require_checkout(checkout)
    if image is SERVICES:
        build_page(checkout, how)
    base = python_image(how)
    digest = hashlib.sha256(base.name.encode())
    for source in _files(image, checkout):
        digest.update(f"{source}\0".encode() + (checkout / source).read_bytes())
    short = image.name.rpartition("/")[2].partition(":")[0]
    target = cache_root() / "images" / f"{short}-{digest.hexdigest()[:12]}.tar"

    def make(path: Path, log: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            context = Path(folder)
            fill_context(context, image, checkout, LoggedBuild(context, log, how.abort, {**os.environ}, _HINT))
            # The context has the page of the console and the runtime: their stages run neither node nor cargo.
            bases = dict.fromkeys(("BASE", "NODE") if image is SERVICES else ("BASE", "RUST"), PYTHON)
            if image is INSTALLER:
                shutil.copytree(runtime(how), context / "installer-runtime")
            recipe = Recipe(image.name, context, image.dockerfile, bases, base=base, base_name=PYTHON)
            build_image(recipe, path, how)

    return make_once(target, f"write image {image.name}", how, make)


def fill_context(context: Path, image: OwnImage, checkout: Path, build: LoggedBuild) -> None:
    """Copy the sources into the context, and install the locked packages there for the Python of the base.

    Raises:
        ToolError: uv is missing, or a package is not available.
    """
    for source in _files(image, checkout):
        (context / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkout / source, context / source)
    beside = Path(sys.executable).parent / "uv"
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise ToolError("uv is missing, which installs the packages of images: `pip install uv`")
    for target, lock in ((context / "tool-packages", _TOOLS_LOCK), (context / f"{image.key}-packages", image.lock)):
        locked = ["--require-hashes", "--requirement", str(checkout / lock)]
        base = ["--python", sys.executable, "--python-version", PYTHON.rpartition(":")[2]]
        # Wheels only: building a package would need unlocked dependencies.
        build.run([uv, "pip", "install", "--only-binary", ":all:", "--target", str(target), *base, *locked])


def documents(archive: Path) -> dict[str, bytes]:
    """Return the SBOM and the lists of an image, by file name.

    Raises:
        ToolError: the archive has none.
    """
    found: dict[str, bytes] = {}
    with tarfile.open(archive) as image:
        for layer in json.load(_member(image, "manifest.json"))[0]["Layers"]:
            with tarfile.open(fileobj=_member(image, layer)) as files:
                for entry in files:
                    path = Path(entry.name)
                    if entry.isfile() and str(path.parent) == DOCUMENTS:
                        found[path.name] = _member(files, entry.name).read()
    if not found:
        raise ToolError(f"{archive} has no files below /{DOCUMENTS}: remove it to rebuild the image")
    return found


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    file = archive.extractfile(name)
    if file is None:
        raise ToolError(f"invalid image: {name} is not a file")
    return file


def _files(image: OwnImage, checkout: Path) -> Iterator[Path]:
    """Yield the context files of an image, relative to the checkout."""
    for pattern in (*_FOR_ALL, image.dockerfile, image.lock, *image.sources):
        for path in sorted(checkout.glob(pattern)):
            if path.is_file() and not _NOT_OURS & {*path.parts}:
                yield path.relative_to(checkout)
