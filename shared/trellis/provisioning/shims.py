"""Views of Shims: their nodes, and the specification that they install.

Pure. In: raw Shim manifests, Node views. Out: frozen views, specifications for the installer, and reasons for their
absence. Called by ``targets`` (all Shims of a node together), ``provisioner`` and the command line. Invariant: the
installer accepts the specification of every Shim that has one; an invalid Shim does not affect other Shims.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from pydantic import ValidationError

from trellis import names
from trellis.config.durations import parse_seconds
from trellis.crds.shim import FetchStrategy, RemovalPolicy, Rolling, RolloutType, Shim, ShimSpec, WorkloadPolicy
from trellis.installer_api.parse_int import whole
from trellis.installer_api.spec import ARCHITECTURES, InstallSpec, Source, SpecError, WantedShim, parse_spec, shim_owner
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.nodes_and_jobs import unix_seconds
from trellis.provisioning.placement import ANYWHERE, Placement
from trellis.provisioning.views import KWASM, SUPPORTED_OS, NodeView, OptIn, opt_in_of, verified_digests

Manifest = dict[str, Any]

_ARCH: Final = ARCHITECTURES
_DIGEST_LENGTH: Final = 16
_SECONDS_MAX_DIGITS: Final = 12


class Refusal(StrEnum):
    """Reason why a Shim is not installed on a selected node; also the reason of its conditions."""

    INVALID = "InvalidShim"
    HANDLER_CONFLICT = "HandlerConflict"
    LABEL_CONFLICT = "LabelConflict"
    CHECKSUM_MISSING = "ChecksumMissing"
    UNSIGNED = "Unsigned"
    NO_SOURCE = "NoSourceForPlatform"


@dataclass(frozen=True, slots=True)
class Verification:
    """The verification of a node; ``timeout`` in seconds, None for the setting of the service."""

    canary: bool | None = None
    canary_image: str | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Taint:
    """A startup taint of nodes; ``value`` None matches any."""

    key: str
    value: str | None
    effect: str


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a source, in base64: of ``payload`` if it is set, else of the fetched file."""

    value: str
    payload: str | None = None


@dataclass(frozen=True, slots=True)
class ShimView:
    """The relevant fields of a Shim. ``invalid``: reason why it is not readable, or cannot be processed.

    ``signatures`` are those of ``sources``, in their order. ``unsigned`` are the sources that are not fetched because
    none of the trusted keys signed them: empty in services without these keys.

    ``placement``: of pods, besides the label of nodes that are verified to run the Shim.
    ``max_update`` None: the setting of the service; with ``recreate`` all nodes at once, regardless of it.
    ``workloads``: treatment of its pods during a rollout, Ignore with ``recreate``; ``workload_timeout`` in seconds,
    None for the default; ``drain``: they are evicted before their node is changed.
    ``created_at``: Unix seconds of its ``creationTimestamp``. ``deleted_at``: of its ``deletionTimestamp``, 0 if it has
    none.
    ``acknowledged``: Unix seconds; a user acknowledged the failures until then, 0 if none.
    """

    name: str
    uid: str
    resource_version: str = field(compare=False)
    generation: int = 0
    created_at: int = 0
    selector: tuple[tuple[str, str], ...] | None = None
    default: bool = False
    handler: str = ""
    runtime_class: str = ""
    overhead: tuple[tuple[str, str], ...] = ()
    placement: Placement = ANYWHERE
    sources: tuple[Source, ...] = ()
    signatures: tuple[Signature | None, ...] = ()
    unsigned: frozenset[Source] = frozenset()
    options: tuple[tuple[str, str], ...] = ()
    max_update: CountOrPercent | None = None
    recreate: bool = False
    pause_on_failures: int | None = None
    workloads: WorkloadPolicy = WorkloadPolicy.WAIT
    workload_timeout: float | None = None
    drain: bool = False
    paused: bool = False
    verification: Verification = Verification()
    removal_policy: RemovalPolicy = RemovalPolicy.REFUSE
    startup_taint: Taint | None = None
    deleting: bool = False
    deleted_at: int = 0
    finalizers: tuple[str, ...] = ()
    acknowledged: int = 0
    invalid: str = ""


def view_shim(manifest: Manifest) -> ShimView:
    """Return the view of a Shim from the API server.

    A Shim that cannot be processed (stored under an older CRD, or rejected by the installer) has ``invalid`` set: it
    selects no further nodes, and stays on nodes where it is installed.
    """
    metadata = manifest["metadata"]
    place: dict[str, Any] = {
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resource_version": metadata["resourceVersion"],
        "generation": int(metadata.get("generation") or 0),
        "created_at": unix_seconds(metadata.get("creationTimestamp")) or 0,
        "default": (metadata.get("labels") or {}).get(names.LABEL_KWASM_DEFAULT) == "true",
        "deleting": "deletionTimestamp" in metadata,
        "deleted_at": unix_seconds(metadata.get("deletionTimestamp")) or 0,
        "finalizers": tuple(metadata.get("finalizers") or ()),
        "acknowledged": _seconds((metadata.get("annotations") or {}).get(names.ANNOTATION_ACKNOWLEDGED, "")),
    }
    try:
        spec = Shim.model_validate(manifest).spec
        if spec is None:
            return ShimView(**place, invalid="spec: missing")
        view = ShimView(**place, **_read(spec))
        return replace(view, invalid=_unusable(view))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except ValueError as error:
        reason = str(error)
    return ShimView(**place, **_legible(manifest), invalid=reason)


def _unusable(shim: ShimView) -> str:
    """Return the reason why no node can have a readable Shim; "" if nodes can.

    The API server rejects these too, but may have older objects. Errors of the installer are detected here, because the
    installer would reject the other Shims of the node as well.
    """
    if shim.name == KWASM:
        return f"metadata.name: {KWASM} is reserved for the legacy installer image"
    own = names.shim_label(shim.name)
    if own in dict(shim.selector or ()):
        return f"spec.nodeSelector: {own} is the label that nodes get once they are ready"
    if own in dict(shim.placement.selector):
        return f"spec.runtimeClass.scheduling.nodeSelector: {own} is the label that the RuntimeClass always selects"
    try:
        parse_spec(InstallSpec((_wanted_shim(shim, shim.sources, ""),)).to_json())
    except SpecError as error:
        return f"spec: {str(error).removeprefix('shims[0].')}"
    return ""


def _legible(manifest: Manifest) -> dict[str, Any]:
    """Return handler and RuntimeClass of an unreadable spec, which identify its pods and nodes."""
    spec = manifest.get("spec")
    found = spec.get("runtimeClass") if isinstance(spec, dict) else None
    runtime_class: Mapping[str, object] = found if isinstance(found, dict) else {}
    fields = {"handler": runtime_class.get("handler"), "runtime_class": runtime_class.get("name")}
    return {field: value for field, value in fields.items() if isinstance(value, str)}


def _seconds(text: str) -> int:
    """Return Unix seconds, or 0 for an invalid text: an invalid annotation acknowledges no failures."""
    return whole(text[: _SECONDS_MAX_DIGITS + 1]) or 0 if len(text) <= _SECONDS_MAX_DIGITS else 0


def _read(spec: ShimSpec) -> dict[str, Any]:
    rolling = spec.rollout_strategy.rolling
    verify = spec.verify
    taint = spec.startup_taint
    overhead, scheduling = spec.runtime_class.overhead, spec.runtime_class.scheduling
    recreate = spec.rollout_strategy.type is RolloutType.RECREATE
    sources = list(_sources(spec.fetch_strategy))
    return {
        "selector": _pairs(spec.node_selector) if spec.node_selector else None,
        "handler": spec.runtime_class.handler,
        "runtime_class": spec.runtime_class.name,
        "overhead": _pairs({name: str(amount) for name, amount in overhead.pod_fixed.items()}) if overhead else (),
        "placement": Placement.of(scheduling.model_dump(by_alias=True)) if scheduling else ANYWHERE,
        "sources": tuple(source for source, _ in sources),
        "signatures": tuple(signature for _, signature in sources),
        "options": _pairs(spec.containerd_runtime_options or {}),
        "max_update": CountOrPercent.parse(rolling.max_update) if rolling else None,
        "recreate": recreate,
        "pause_on_failures": rolling.pause_on_failures if rolling else None,
        "workloads": _workloads(rolling, recreate=recreate),
        "workload_timeout": parse_seconds(rolling.workload_timeout) if rolling and rolling.workload_timeout else None,
        "drain": bool(rolling and rolling.drain and not recreate),
        "paused": bool(spec.paused),
        "verification": Verification(
            verify.canary, verify.canary_image, parse_seconds(verify.timeout) if verify.timeout else None
        )
        if verify
        else Verification(),
        "removal_policy": spec.removal_policy or RemovalPolicy.REFUSE,
        "startup_taint": Taint(taint.key, taint.value, taint.effect) if taint else None,
    }


def _workloads(rolling: Rolling | None, *, recreate: bool) -> WorkloadPolicy:
    """Return the treatment of pods: with ``recreate`` no node follows another, so there is nothing to wait for."""
    if recreate:
        return WorkloadPolicy.IGNORE
    return (rolling.workloads if rolling else None) or WorkloadPolicy.WAIT


def _sources(fetch: FetchStrategy) -> Iterable[tuple[Source, Signature | None]]:
    """Yield the sources in order of precedence: of one platform, of all platforms, an image."""
    for platform in fetch.platforms or ():
        source = Source(platform.location, _ARCH[platform.arch], platform.sha256 or None)
        yield source, _signature(platform.signature)
    if fetch.anon_http:
        yield Source(fetch.anon_http.location, None, fetch.anon_http.sha256), _signature(fetch.anon_http.signature)
    if fetch.oci:
        secret = fetch.oci.pull_secret
        source = Source(
            f"oci://{fetch.oci.image}", None, member=fetch.oci.path, pull_secret=secret.name if secret else None
        )
        yield source, _signature(fetch.oci.signature, fetch.oci.signed_payload)
    if fetch.image:
        yield Source(fetch.image.path, None, binary_sha256=fetch.image.sha256), _signature(fetch.image.signature)


def _signature(value: str | None, payload: str | None = None) -> Signature | None:
    return Signature(value, payload) if value else None


def _pairs(mapping: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(mapping.items()))


def is_for(shim: ShimView, node: NodeView, *, auto_provision: bool) -> bool:
    """Return True if a Shim selects a node, even if it cannot be installed there.

    With a nodeSelector: the Linux nodes that match. Without one: every Linux node, as in runtime-class-manager, except
    for a Shim labelled as KWasm's default, which selects nodes that opted in by annotation. An annotation with a value
    other than ``true`` excludes a node from every Shim. The label of another Shim matches while that one is verified on
    the node: a drain removes the label, and must not remove the Shims that select it (ADR 126).
    """
    if shim.invalid or shim.deleting or node.operating_system != SUPPORTED_OS:
        return False
    wanted = opt_in_of(node, auto_provision=auto_provision and shim.default)
    if node.opt_in is not None and wanted is not OptIn.IN:
        return False
    if shim.default and wanted is OptIn.IN:
        return True
    if shim.selector is None:
        return not shim.default
    labels = node.label_values()
    lacks = {(key, value) for key, value in shim.selector if labels.get(key) != value}
    own = ((names.shim_label(name), names.SHIM_PROVISIONED) for name in verified_digests(node.installed))
    return not lacks or lacks <= {*own}


def wanted_shim_for(shim: ShimView, architecture: str, *, require_checksum: bool) -> WantedShim | Refusal:
    """Return the specification for the installer on a node of this architecture, or the reason why there is none.

    The digest covers what is installed there: another source, handler or option results in another version, another
    rollout limit or the source of another architecture does not.
    """
    if shim.invalid:
        return Refusal.INVALID
    arch = _ARCH.get(architecture)
    source = next((item for item in shim.sources if item.arch in (arch, None)), None) if arch else None
    if source is None:
        return Refusal.NO_SOURCE
    if require_checksum and not source.is_pinned:
        return Refusal.CHECKSUM_MISSING
    if source in shim.unsigned:
        return Refusal.UNSIGNED
    return _wanted_shim(shim, (source,), _version(shim.handler, source, shim.options))


def content_of(shim: ShimView) -> str:
    """Return the digest of everything that nodes may receive of a Shim: a rollout of other content is another one."""
    versions = [_version(shim.handler, source, shim.options) for source in shim.sources]
    return names.short_hash(shim.uid, *versions)


@lru_cache(maxsize=1024)  # called for each node of a Shim in each plan
def _version(handler: str, source: Source, options: tuple[tuple[str, str], ...]) -> str:
    content = [handler, source.location, source.sha256, source.binary_sha256, source.member, list(options)]
    canonical = json.dumps(content, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:_DIGEST_LENGTH]


def _wanted_shim(shim: ShimView, sources: tuple[Source, ...], digest: str) -> WantedShim:
    return WantedShim(shim.name, shim.handler, digest, shim_owner(shim.name), sources, dict(shim.options))
