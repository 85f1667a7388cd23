"""The plan of a release: versions, names, and the texts that depend on them.

Pure. In: the version, the registry, the commit, texts of the checkout, digests of what was built. Out: names and tags,
changed texts, the predicate of the provenance. Called by the modules beside it, which have the effects.
Invariant: the same values give the same texts, so the same commit gives the same release.
Sources: PEP 440 and Semantic Versioning 2 for versions; SLSA provenance v1 for the predicate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import yaml

from trellis.oci.references import parse_image
from trellis_tools.release.errors import ReleaseError

SOURCE: Final = "https://github.com/trellis-wasm/trellis"
"""Repository of the source, as in the annotations of images."""
DEFAULT_REGISTRY: Final = "ghcr.io/trellis-wasm"
"""Registry in the names of a release that is built and not pushed."""
CHART: Final = "deploy/helm/trellis"
IMAGES: Final = {"services": "trellis", "installer": "node-installer"}
"""Repository below the registry by the key of an image in ``deploy/images``."""
CHART_NAME: Final = "charts/trellis"
PACKAGES_NAME: Final = "trellis-packages"
"""Repository of the wheels and source distributions, for registries of networks without a package index."""
BUILD_TYPE: Final = f"{SOURCE}/blob/main/docs/release-process.md#provenance"

_VERSION: Final = re.compile(
    r"(?P<release>(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*)){2})(?:-rc\.(?P<candidate>[1-9][0-9]*))?"
)


@dataclass(frozen=True, slots=True)
class Version:
    """A version: ``1.2.3``, or the release candidate ``1.2.3-rc.1``. ``text`` is the tag of images and of the chart."""

    text: str
    python: str
    """The same version in the form of Python packages: ``1.2.3rc1``."""

    @classmethod
    def parse(cls, text: str) -> Version:
        """Return a version.

        Raises:
            ReleaseError: the text is not one of the two forms.
        """
        found = _VERSION.fullmatch(text)
        if found is None:
            raise ReleaseError(f"VERSION={text} is not a version like 1.2.3 or 1.2.3-rc.1")
        candidate = found["candidate"]
        return cls(text, found["release"] + (f"rc{candidate}" if candidate else ""))


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform of images. ``architecture``: as in indexes and in Debian; ``machine``: as in Python's markers."""

    architecture: str
    machine: str

    @property
    def wheels(self) -> str:
        """Platform of wheels as uv names it: the C library of Debian 12 is version 2.36."""
        return f"{self.machine}-manylinux_2_36"


PLATFORMS: Final = (Platform("amd64", "x86_64"), Platform("arm64", "aarch64"))


@dataclass(frozen=True, slots=True)
class Release:
    """A release: its version, registry and commit, and the time (seconds since 1970) that all files in it have."""

    version: Version
    registry: str
    commit: str
    epoch: int

    @classmethod
    def parse(cls, version: str, registry: str, commit: str, epoch: str) -> Release:
        """Return the release of these values.

        Raises:
            ReleaseError: a value is invalid; the message names it.
        """
        parsed = Version.parse(version)
        try:
            parse_image(f"{registry}/x:{version}")
        except ValueError:
            raise ReleaseError(f"REGISTRY={registry} is not a registry like registry.example.com/team") from None
        if not re.fullmatch(r"[0-9]{1,11}", epoch):
            raise ReleaseError(f"SOURCE_DATE_EPOCH={epoch} is not a number of seconds since 1970")
        return cls(parsed, registry, commit, int(epoch))

    @property
    def created(self) -> str:
        """Time of the release (RFC 3339, UTC)."""
        return datetime.fromtimestamp(self.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def tagged(self, name: str) -> str:
        """Return the reference by tag of a repository below the registry."""
        return f"{self.registry}/{name}:{self.version.text}"

    def pinned(self, name: str, digest: str) -> str:
        """Return the reference by digest of a repository below the registry."""
        return f"{self.registry}/{name}@{digest}"

    def annotations(self, title: str, description: str) -> dict[str, str]:
        """Return the annotations of a manifest (OCI image specification, predefined keys)."""
        values = {
            "title": title,
            "description": description,
            "version": self.version.text,
            "revision": self.commit,
            "created": self.created,
            "source": SOURCE,
            "licenses": "Apache-2.0",
        }
        return {f"org.opencontainers.image.{key}": value for key, value in values.items()}


@dataclass(frozen=True, slots=True)
class _Stamp:
    """A version in a file: the pattern of its text, and the new text, in which ``{0}`` is the version."""

    file: str
    pattern: str
    text: str
    python: bool = False


_STAMPS: Final = (
    _Stamp("pyproject.toml", r'^version = "[^"]+"$', 'version = "{0}"', python=True),
    _Stamp("devtools/pyproject.toml", r'^version = "[^"]+"$', 'version = "{0}"', python=True),
    _Stamp("devtools/pyproject.toml", r'"trellis-wasm==[^"]+"', '"trellis-wasm=={0}"', python=True),
    _Stamp(f"{CHART}/Chart.yaml", r"^version: .+$", "version: {0}"),
    _Stamp(f"{CHART}/Chart.yaml", r"^appVersion: .+$", "appVersion: {0}"),
    *(_Stamp(f"deploy/images/{key}.Dockerfile", r"^ARG VERSION=.+$", "ARG VERSION={0}", python=True) for key in IMAGES),
    *(
        _Stamp(
            f"deploy/base/{file}.yaml",
            rf"{re.escape(DEFAULT_REGISTRY)}/trellis:\S+",
            f"{DEFAULT_REGISTRY}/trellis:{{0}}",
        )
        for file in ("services", "bus-keys")
    ),
)
STAMPED: Final = tuple(dict.fromkeys(stamp.file for stamp in _STAMPS))
"""Files with the version, as paths in a checkout."""


def stamped(file: str, text: str, version: Version) -> str:
    """Return the text of a file of :data:`STAMPED` with this version.

    Raises:
        ReleaseError: the file has no version where it is expected.
    """
    for stamp in _STAMPS:
        if stamp.file == file:
            value = stamp.text.format(version.python if stamp.python else version.text)
            text, count = re.subn(stamp.pattern, value.replace("\\", r"\\"), text, flags=re.MULTILINE)
            if not count:
                raise ReleaseError(f"{file} has no version that matches {stamp.pattern}")
    return text


def image_values(release: Release, digests: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Return the values of the chart that name its images by digest. ``digests``: by key of :data:`IMAGES`."""
    values: dict[tuple[str, ...], str] = {}
    for path, key in ((("image",), "services"), (("installers", "image"), "installer")):
        registry, _, repository = f"{release.registry}/{IMAGES[key]}".partition("/")
        values |= {(*path, "registry"): registry, (*path, "repository"): repository, (*path, "digest"): digests[key]}
    return values


def runtime_values(runtimes: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Return the values of the chart for its default Shim. ``runtimes``: SHA-256 of the runtime, by architecture."""
    return {("defaultShim", "sha256", architecture): digest for architecture, digest in runtimes.items()}


def pinned_values(text: str, values: Mapping[tuple[str, ...], Any]) -> str:
    """Return a ``values.yaml`` with other values at these paths; comments and all other text are kept.

    Raises:
        ReleaseError: a path does not exist.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    spans = []
    for path, value in values.items():
        node = _node_at(root, path)
        spans.append((node.start_mark.index, node.end_mark.index, json.dumps(value, sort_keys=True)))
    for start, end, value in sorted(spans, reverse=True):
        text = text[:start] + value + text[end:]
    return text


def _node_at(root: yaml.Node | None, path: Sequence[str]) -> yaml.Node:
    node = root
    for key in path:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        node = next((value for name, value in pairs if name.value == key), None)
    if node is None:
        raise ReleaseError(f"values.yaml has no value {'.'.join(path)}, which names an image of the release")
    return node


@dataclass(frozen=True, slots=True)
class Material:
    """An input of a build: a package URL or a file of the commit, and its SHA-256 in hexadecimal."""

    uri: str
    sha256: str


def provenance(release: Release, materials: Iterable[Material], builder: str) -> dict[str, Any]:
    """Return the predicate of the provenance of all artifacts of a release. ``builder``: URI of the build platform.

    It has no time of the build, so that a repeated build gives the same predicate.
    """
    commit = {"uri": f"git+{SOURCE}@{release.commit}", "digest": {"gitCommit": release.commit}}
    inputs = {(material.uri, material.sha256) for material in materials}
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"version": release.version.text, "registry": release.registry},
            "internalParameters": {
                "sourceDateEpoch": release.epoch,
                "platforms": [f"linux/{platform.architecture}" for platform in PLATFORMS],
            },
            "resolvedDependencies": [
                commit,
                *({"uri": uri, "digest": {"sha256": sha256}} for uri, sha256 in sorted(inputs)),
            ],
        },
        "runDetails": {"builder": {"id": builder}},
    }
