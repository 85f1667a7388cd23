"""The specification of an installer Job, the contract between provisioner and node_installer. ``result``: the result.

In: a specification as JSON (ConfigMap, environment or argument). Out: frozen dataclasses. Called by node_installer and
by the creators of its Jobs.
Pure, and standard library only: the image of the installer stays small and starts quickly (ADR 18).
Invariant: the result of :func:`parse_spec` is valid: names are safe in paths and in TOML, digests are digests.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trellis.installer_api.json_text import read_json

ARCHITECTURES: Final = {"amd64": "amd64", "x86_64": "amd64", "arm64": "arm64", "aarch64": "arm64"}
"""Supported names of architectures, each with the name that Kubernetes and OCI use."""

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.IGNORECASE)
_DIGEST = re.compile(r"[A-Za-z0-9:._-]{1,128}")
_OWNER = re.compile(r"[\x21-\x7e]{1,253}")
_IMAGE_BY_DIGEST = re.compile(r"oci(\+http)?://[^@]+@sha256:[0-9a-f]{64}")
_OPTION = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}")
_RESERVED: Final = frozenset({"runc"})

SHARED_OWNER: Final = "trellis"
"""Default owner. The state of a node may have it for all Shims, which then differ by their names."""


def shim_owner(shim: str) -> str:
    """Return the owner of the files and handlers of a Shim on nodes."""
    return f"shim/{shim}"


class SpecError(ValueError):
    """An invalid specification; the message names the field and the allowed values."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a shim for one platform.

    ``location``: ``https://``, ``http://`` (if allowed), ``oci://registry/repository[:tag][@sha256:…]``
    (``oci+http://`` without TLS, if allowed) or an absolute path in the image of the installer. ``sha256``: checksum of
    the downloaded file (for an archive, of the archive), ``binary_sha256``: of the shim itself. ``member``: path of the
    shim in an archive or image; without it the shim is found by name. ``arch`` None: any. ``pull_secret``: name of the
    registry credentials, which the installer reads from a directory of that name.
    """

    location: str
    arch: str | None = None
    sha256: str | None = None
    binary_sha256: str | None = None
    member: str | None = None
    pull_secret: str | None = None

    @property
    def is_pinned(self) -> bool:
        """True if a checksum or the digest of an image determines the content of the source.

        A path in the image of the installer needs a checksum, even if that image is referenced by digest: the version
        of a Shim does not determine the image of the installer, so nodes with one version could have different files
        (ADR 28).
        """
        return bool(self.sha256 or self.binary_sha256 or _IMAGE_BY_DIGEST.fullmatch(self.location))


@dataclass(frozen=True, slots=True)
class WantedShim:
    """A shim to install on a node. ``digest`` identifies the version; an installed digest is not downloaded again.

    For a removal, ``name`` and ``owner`` are sufficient (:func:`removal_of`): ``handler`` "" means every handler that
    the node has for them.
    """

    name: str
    handler: str
    digest: str
    owner: str
    sources: tuple[Source, ...] = ()
    runtime_options: Mapping[str, str] = field(default_factory=dict)

    def source_for(self, arch: str) -> Source | None:
        """Return the source for an architecture (``amd64``, ``arm64``), otherwise a source for any architecture."""
        for wanted in (arch, None):
            for source in self.sources:
                if source.arch == wanted:
                    return source
        return None


@dataclass(frozen=True, slots=True)
class InstallSpec:
    """The specification of one run: the shims, and the checks to relax.

    ``retry_refused``: a user requested a retry of shims with which the container runtime did not start (ADR 24).
    """

    shims: tuple[WantedShim, ...]
    require_checksum: bool = True
    allow_http: bool = False
    retry_refused: bool = False

    def to_json(self) -> str:
        """Return the specification for :func:`parse_spec`, keys sorted, on one line."""
        return json.dumps(
            {
                "shims": [_shim_json(shim) for shim in self.shims],
                "requireChecksum": self.require_checksum,
                "allowHttp": self.allow_http,
                **({"retryRefused": True} if self.retry_refused else {}),
            },
            sort_keys=True,
            separators=(",", ":"),
        )


def removal_of(name: str, owner: str, handler: str = "") -> WantedShim:
    """Return the removal of a shim, in any version and from any source: of one handler, or of all its handlers."""
    return WantedShim(name, handler, "", owner)


def parse_spec(text: str, *, removal: bool = False) -> InstallSpec:
    """Parse a specification; unknown fields are ignored. ``removal``: of shims to remove, see :func:`removal_of`.

    Raises:
        SpecError: the text is not JSON, a field is missing or malformed, or two shims have the same handler.
    """
    try:
        value = read_json(text)
    except ValueError as error:
        message = f"the specification is not JSON: {error}"
        raise SpecError(message) from error
    if not isinstance(value, dict) or not isinstance(value.get("shims"), list):
        raise SpecError('the specification must be an object with a list "shims"')
    read = _removal if removal else _shim
    shims = tuple(read(item, f"shims[{index}]") for index, item in enumerate(value["shims"]))
    handlers = [] if removal else [shim.handler for shim in shims]
    for handler in handlers:
        if handlers.count(handler) > 1:
            raise SpecError(f"two shims want the handler {handler!r}: a handler has one shim")
    return InstallSpec(
        shims=shims,
        require_checksum=_flag(value, "requireChecksum", default=True),
        allow_http=_flag(value, "allowHttp", default=False),
        retry_refused=_flag(value, "retryRefused", default=False),
    )


def _removal(value: object, where: str) -> WantedShim:
    """Parse a removal. Sources and options are not validated: an error in them must not prevent the removal."""
    item = _object(value, where)
    name = _text(item, "name", where, _SUBDOMAIN)
    return removal_of(name, _owner(item, where), _handler(item, where, default=""))


def _shim(value: object, where: str) -> WantedShim:
    item = _object(value, where)
    name = _text(item, "name", where, _SUBDOMAIN)
    options = _object(item.get("containerdRuntimeOptions") or {}, f"{where}.containerdRuntimeOptions")
    for key, option in options.items():
        if not _OPTION.fullmatch(key) or not isinstance(option, str) or not _is_utf_8(option):
            raise SpecError(f"{where}.containerdRuntimeOptions: {key!r} must be a plain name with a text value")
    sources = [] if item.get("sources") is None else item["sources"]
    if not isinstance(sources, list):
        raise SpecError(f"{where}.sources must be a list")
    # Without a digest, the version is identified by a hash of sources and options.
    canonical = json.dumps([sources, options], sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:16]
    return WantedShim(
        name=name,
        handler=_handler(item, where, default=name),
        digest=_text(item, "digest", where, _DIGEST, default=digest),
        owner=_owner(item, where),
        sources=tuple(_source(source, f"{where}.sources[{index}]") for index, source in enumerate(sources)),
        runtime_options=dict(options),
    )


def _is_utf_8(text: str) -> bool:
    """Return whether a text can be encoded: JSON may contain lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _handler(item: Mapping[str, Any], where: str, *, default: str) -> str:
    handler = _text(item, "handler", where, _LABEL, default=default)
    if handler in _RESERVED:
        raise SpecError(f"{where}.handler: {handler!r} is the node's own runtime")
    return handler


def _owner(item: Mapping[str, Any], where: str) -> str:
    return _text(item, "owner", where, _OWNER, default=SHARED_OWNER)


def _source(value: object, where: str) -> Source:
    item = _object(value, where)
    if item.get("os", "linux") != "linux":
        raise SpecError(f"{where}.os: only linux is supported, not {item['os']!r}")
    arch = item.get("arch")
    if arch is not None and (not isinstance(arch, str) or arch not in ARCHITECTURES):
        raise SpecError(f"{where}.arch: {arch!r} is not one of {', '.join(ARCHITECTURES)}")
    location = _text(item, "location", where, re.compile(r"(https?://|oci(\+http)?://|/)[\x21-\x7e]+"))
    member = item.get("member")
    if member is not None and (not isinstance(member, str) or not member):
        raise SpecError(f"{where}.member must be a path in the archive")
    pull_secret = None if item.get("pullSecret") is None else _text(item, "pullSecret", where, _SUBDOMAIN)
    return Source(
        location=location,
        arch=ARCHITECTURES[arch] if arch else None,
        sha256=_sha256(item, "sha256", where),
        binary_sha256=_sha256(item, "binarySha256", where),
        member=member,
        pull_secret=pull_secret,
    )


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SpecError(f"{where} must be an object")
    return value


def _flag(item: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = item.get(key, default)
    if not isinstance(value, bool):
        raise SpecError(f"{key} must be true or false")
    return value


def _text(
    item: Mapping[str, Any], key: str, where: str, pattern: re.Pattern[str], *, default: str | None = None
) -> str:
    value = item.get(key)
    if value in (None, "") and default is not None:
        value = default
    if value == default == "":
        return ""
    if not isinstance(value, str) or not pattern.fullmatch(value) or ".." in value.split("/"):
        raise SpecError(f"{where}.{key}: {value!r} is not allowed (it must match {pattern.pattern})")
    return value


def _sha256(item: Mapping[str, Any], key: str, where: str) -> str | None:
    value = item.get(key)
    if value in (None, ""):
        return None
    found = _SHA256.fullmatch(value) if isinstance(value, str) else None
    if not found:
        raise SpecError(f"{where}.{key}: {value!r} is not a SHA-256 (64 hexadecimal digits)")
    return found[1].lower()


def _shim_json(shim: WantedShim) -> dict[str, Any]:
    sources = [
        {
            key: item
            for key, item in (
                ("location", source.location),
                ("arch", source.arch),
                ("sha256", source.sha256),
                ("binarySha256", source.binary_sha256),
                ("member", source.member),
                ("pullSecret", source.pull_secret),
            )
            if item is not None
        }
        for source in shim.sources
    ]
    named = {"handler": shim.handler, "digest": shim.digest}
    return {
        "name": shim.name,
        "owner": shim.owner,
        "sources": sources,
        "containerdRuntimeOptions": dict(shim.runtime_options),
        **{key: value for key, value in named.items() if value},
    }
