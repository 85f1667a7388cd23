"""Builds the images of a release for all platforms, as layers over a base, without an engine and without emulation.

In: a checkout, a release. Out: an OCI layout for each image, its SBOM for each platform, and the inputs of the build.
uv installs the locked packages as wheels for each platform, and cargo builds the runtime for it. Called by the command.
Invariant: an image has the configuration and the contents that its Dockerfile in ``deploy/images`` describes, and
nothing of the image is run.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.own_images import INSTALLER, SERVICES, OwnImage
from trellis_dev.localcluster.progress import stepping
from trellis_dev.localcluster.wasmshim import IN_IMAGE, SHIM, runtime
from trellis_tools.release.artifacts import Artifact
from trellis_tools.release.base import ENVIRONMENT, Base, compile_stdlib, make_base, without
from trellis_tools.release.dockerfile import Stage, final_stage
from trellis_tools.release.errors import ReleaseError
from trellis_tools.release.layout import Entry, Layout, entries_of, write_layer
from trellis_tools.release.oci import LAYER, Descriptor, Layer, image_config, image_index, image_manifest
from trellis_tools.release.plan import IMAGES, PLATFORMS, Material, Platform, Release
from trellis_tools.release.programs import run, run_bytes

OWN: Final = (SERVICES, INSTALLER)
_TOOLS_LOCK: Final = "requirements-images.lock"
_PAGE_LOCK: Final = "services/console/page/package-lock.json"
_CRATES_LOCK: Final = "devtools/trellis_dev/localcluster/runtime/crates.lock"
_ENVIRONMENTS: Final = {"services": "/opt/trellis", "installer": "/opt/trellis-installer"}
"""Directory of the Python environment in the build stage and in the image."""
_BASE_NAME: Final = "debian:bookworm"
_SBOM: Final = "sbom.cdx.json"


@dataclass(frozen=True)
class Images:
    """The built images by key, the SHA-256 of the runtime by architecture, and the inputs of the builds."""

    artifacts: Mapping[str, Artifact]
    runtimes: Mapping[str, str]
    materials: tuple[Material, ...] = field(repr=False)


@dataclass(frozen=True)
class _Build:
    """The shared parts of all builds of a release. ``source``: the checkout; ``python``: interpreter as in the base."""

    release: Release
    source: Path
    work: Path
    python: Path
    tools: Path

    def call(self, *arguments: str | Path, path: tuple[Path, ...] = ()) -> bytes:
        """Run a Python program of the checkout; ``path``: where it imports modules from."""
        environment = {"PYTHONPATH": ":".join(map(str, path)), "PYTHONHASHSEED": "0"}
        return run_bytes([str(self.python), *map(str, arguments)], cwd=self.source, environment=environment)


def build_images(release: Release, source: Path, work: Path, out: Path, how: How) -> Images:
    """Build all images into layouts below ``out``. ``work``: an empty directory.

    Raises:
        ReleaseError: a Dockerfile has an unsupported instruction, or a program failed. ToolError: a download failed.
    """
    runtimes = {item: runtime(how, item.architecture) for item in PLATFORMS}
    bases = {item: make_base(item, _made(work / f"base-{item.architecture}"), how) for item in PLATFORMS}
    build = _Build(release, source, work, _interpreter(next(iter(bases.values()))), work / "tools")
    _install(build, source / _TOOLS_LOCK, build.tools, None)
    stages = {image.key: _stage(image, build) for image in OWN}
    patterns = [pattern for stage in stages.values() for pattern in stage.removed]
    layers = {}
    for platform, base in bases.items():
        with stepping(how.progress, f"write the base layer for {platform.architecture}"):
            compile_stdlib(base, build.python, _made(work / f"stdlib-{platform.architecture}"))
            file = work / f"base-{platform.architecture}.tar.gz"
            layer = write_layer(file, without(base.entries, patterns), release.epoch, f"packages of {_BASE_NAME}")
            layers[platform] = (file, layer)
    artifacts = {}
    for image in OWN:
        layout = Layout(out / "oci" / IMAGES[image.key])
        manifests: dict[str, Descriptor] = {}
        sboms: dict[str, Path] = {}
        for platform, base in bases.items():
            with stepping(how.progress, f"build {IMAGES[image.key]} for {platform.architecture}"):
                file, below = layers[platform]
                layout.add_file(file, LAYER)
                folder = _made(work / f"{image.key}-{platform.architecture}")
                shim = runtimes[platform] if image is INSTALLER else None
                above = _contents(build, image, stages[image.key], (platform, base, shim), folder)
                top = _manifest(build, stages[image.key], platform, layout, [below, above])
                manifests[platform.architecture] = top
                sboms[top.digest] = out / "sbom" / f"{IMAGES[image.key]}.{platform.architecture}.cdx.json"
                sboms[top.digest].parent.mkdir(exist_ok=True)
                shutil.copyfile(folder / "inventory" / _SBOM, sboms[top.digest])
                layout.add_file(folder / "layer.tar.gz", LAYER)
        labels = stages[image.key].labels
        annotations = release.annotations(IMAGES[image.key], labels["org.opencontainers.image.description"])
        index = layout.add(image_index(manifests, annotations))
        layout.close(index)
        artifacts[image.key] = Artifact(IMAGES[image.key], layout.root, index.digest, sboms)
    sums = {
        item.architecture: hashlib.sha256((found / SHIM).read_bytes()).hexdigest() for item, found in runtimes.items()
    }
    return Images(artifacts, sums, tuple(_materials(source, bases)))


def _materials(source: Path, bases: Mapping[Platform, Base]) -> set[Material]:
    locks = {_TOOLS_LOCK, _PAGE_LOCK, _CRATES_LOCK, *(image.lock for image in OWN)}
    files = {Material(lock, hashlib.sha256((source / lock).read_bytes()).hexdigest()) for lock in locks}
    return files | {package.material for base in bases.values() for package in base.packages}


def _stage(image: OwnImage, build: _Build) -> Stage:
    """Return the final stage of an image's Dockerfile."""
    text = (build.source / image.dockerfile).read_text(encoding="utf-8")
    release = build.release
    arguments = {"BASE": _BASE_NAME, "VERSION": release.version.python, "REVISION": release.commit}
    try:
        return final_stage(text, arguments, ENVIRONMENT)
    except ReleaseError as error:
        raise ReleaseError(f"{image.dockerfile}: {error}") from None


def _contents(
    build: _Build, image: OwnImage, stage: Stage, on: tuple[Platform, Base, Path | None], folder: Path
) -> Layer:
    """Assemble an image in a folder and write its layer. ``on``: its platform, its base, and its runtime if any."""
    platform, base, shim = on
    packages, root, inventory = folder / "packages", folder / "root", folder / "inventory"
    listing = folder / "base-packages.txt"
    listing.write_text(base.listing)
    _install(build, build.source / image.lock, packages, platform)
    build.call("deploy/images/assemble.py", image.key, "--packages", packages, "--root", root)
    target = ("--machine", platform.machine, "--python", base.python, "--base", listing, "--tools", build.tools)
    console = ("--console", "services/console") if image is SERVICES else ()
    ours = ("--runtime", shim) if shim is not None else ()
    build.call("deploy/images/inventory.py", root, image.lock, inventory, *console, *ours, *target)
    made = {
        _ENVIRONMENTS[image.key]: dict(_relocated(root, base)),
        "/inventory": dict(entries_of(inventory)),
        "/canary.wasm": {"": Entry(0o644, content=_canary(build))},
    }
    if shim is not None:
        made[IN_IMAGE] = {SHIM: Entry(source=shim / SHIM)}
    entries: dict[str, Entry] = {}
    for copied, destination in stage.copies:
        if copied not in made:
            raise ReleaseError(
                f"{image.dockerfile} copies {copied} from its build stage, which a release does not make"
            )
        at = destination.lstrip("/")
        entries |= {f"{at}/{name}" if name else at: entry for name, entry in made[copied].items()}
    return write_layer(folder / "layer.tar.gz", entries, build.release.epoch, f"COPY of {image.dockerfile}")


def _relocated(root: Path, base: Base) -> Iterator[tuple[str, Entry]]:
    """Yield the environment with the interpreter of the base in place of the one that assembled it (PEP 405)."""
    home = Path(base.interpreter).parent
    settings = f"home = {home}\ninclude-system-site-packages = false\nversion = {base.python}\n"
    for name, entry in entries_of(root):
        if name == "pyvenv.cfg":
            yield name, Entry(0o644, content=settings.encode())
        elif entry.link is not None and entry.link.startswith("/"):
            yield name, Entry(entry.mode, link=base.interpreter)
        else:
            yield name, entry


def _canary(build: _Build) -> bytes:
    return build.call("-m", "node_installer.domain.canary", path=(build.source / "services", build.source / "shared"))


def _manifest(build: _Build, stage: Stage, platform: Platform, layout: Layout, layers: list[Layer]) -> Descriptor:
    """Add configuration and manifest of an image for a platform to its layout; return the manifest's descriptor."""
    config = {
        "Env": [f"{name}={value}" for name, value in stage.environment.items()],
        "Entrypoint": stage.entrypoint,
        "Cmd": stage.command,
        "User": stage.user,
        "WorkingDir": "/",
        "Labels": stage.labels,
    }
    document = image_config(platform.architecture, build.release.created, config, layers)
    layout.add(document)
    return layout.add(image_manifest(document, layers, {}))


def _install(build: _Build, lock: Path, target: Path, platform: Platform | None) -> None:
    """Install the packages of a lock into a directory, as wheels; ``platform`` None: for this machine."""
    uv = Path(sys.executable).with_name("uv")
    program = str(uv) if uv.exists() else "uv"
    of_platform = ["--python-platform", platform.wheels] if platform is not None else []
    locked = ["--only-binary", ":all:", "--require-hashes", "--requirement", str(lock)]
    into = ["--python", str(build.python), "--target", str(target)]
    run([program, "pip", "install", "--quiet", *into, *of_platform, *locked])


def _interpreter(base: Base) -> Path:
    """Return an interpreter of this machine whose bytecode the interpreter of the base can run.

    Raises:
        ReleaseError: there is none.
    """
    if f"{sys.version_info.major}.{sys.version_info.minor}" == base.minor:
        return Path(sys.executable)
    try:
        found = run(["uv", "python", "find", "--no-project", base.minor])
    except ReleaseError as error:
        raise ReleaseError(f"Python {base.minor} is missing, whose bytecode is in the images: install it") from error
    return Path(found.strip())


def _made(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
