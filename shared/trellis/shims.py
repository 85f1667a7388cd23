"""Shims as Kubernetes has them: which nodes they are for, and what they install there.

Pure. In: raw Shim manifests, Node views. Out: frozen views, wishes for an installer, and why there is none.
Called by ``provisioner`` (plans, Jobs, status), ``node_watcher`` (labels) and the command line.
Invariant: what a node is to have depends on the Shims and the Node alone, so every reader works out the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pydantic import ValidationError

from trellis import names
from trellis.counts import CountOrPercent
from trellis.crds.shim import FetchStrategy, RemovalPolicy, RolloutType, Shim, ShimSpec
from trellis.durations import parse_seconds
from trellis.installing import ARCHITECTURES, ShimWish, Source
from trellis.provisioning import KWASM, SUPPORTED_OS, NodeView, Target, Wish, installed_on, wish_of

Manifest = dict[str, Any]

_ARCH: Final = ARCHITECTURES
_DIGEST_LENGTH: Final = 16
_SECONDS_MAX_DIGITS: Final = 12


class Refusal(StrEnum):
    """Why a Shim is not installed on a node that it is for; also the reason of its conditions."""

    INVALID = "InvalidShim"
    UNVERIFIED = "Unverified"
    NO_SOURCE = "NoSourceForPlatform"


@dataclass(frozen=True, slots=True)
class Verification:
    """How a node proves that it runs Wasm; ``timeout`` in seconds, None for the service's own."""

    canary: bool | None = None
    canary_image: str | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint that a node starts with; ``value`` None fits any."""

    key: str
    value: str | None
    effect: str


@dataclass(frozen=True, slots=True)
class ShimView:
    """What matters of a Shim. ``max_update`` None is all nodes at once; ``invalid`` says why it cannot be read.

    ``forgiven``: Unix seconds, failures recorded up to then were forgiven by a person; 0 if none were.
    """

    name: str
    uid: str
    resource_version: str = field(compare=False)
    generation: int = 0
    selector: tuple[tuple[str, str], ...] | None = None
    default: bool = False
    handler: str = ""
    runtime_class: str = ""
    overhead: tuple[tuple[str, str], ...] = ()
    sources: tuple[Source, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    max_update: CountOrPercent | None = None
    pause_on_failures: int | None = None
    paused: bool = False
    verification: Verification = Verification()
    removal_policy: RemovalPolicy = RemovalPolicy.REFUSE
    startup_taint: Taint | None = None
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    forgiven: int = 0
    invalid: str = ""


def view_shim(manifest: Manifest) -> ShimView:
    """Project a Shim as the API server returns it.

    One that cannot be read (stored under an older definition) has ``invalid`` set, and is for no node.
    """
    metadata = manifest["metadata"]
    place: dict[str, Any] = {
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resource_version": metadata["resourceVersion"],
        "generation": int(metadata.get("generation") or 0),
        "default": (metadata.get("labels") or {}).get(names.LABEL_KWASM_DEFAULT) == "true",
        "deleting": "deletionTimestamp" in metadata,
        "finalizers": tuple(metadata.get("finalizers") or ()),
        "forgiven": _seconds((metadata.get("annotations") or {}).get(names.ANNOTATION_FORGIVEN, "")),
    }
    try:
        spec = Shim.model_validate(manifest).spec
        if spec is None:
            return ShimView(**place, invalid="spec: missing")
        return ShimView(**place, **_read(spec))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return ShimView(**place, invalid=f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    except ValueError as error:
        return ShimView(**place, invalid=str(error))


def _seconds(text: str) -> int:
    """Return Unix seconds, 0 for what is none: a mark that cannot be read forgives nothing."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _SECONDS_MAX_DIGITS else 0


def _read(spec: ShimSpec) -> dict[str, Any]:
    rolling = spec.rollout_strategy.rolling
    verify = spec.verify
    taint = spec.startup_taint
    overhead = spec.runtime_class.overhead
    recreate = spec.rollout_strategy.type is RolloutType.RECREATE
    return {
        "selector": _pairs(spec.node_selector) if spec.node_selector else None,
        "handler": spec.runtime_class.handler,
        "runtime_class": spec.runtime_class.name,
        "overhead": _pairs({name: str(amount) for name, amount in overhead.pod_fixed.items()}) if overhead else (),
        "sources": tuple(_sources(spec.fetch_strategy)),
        "options": _pairs(spec.containerd_runtime_options or {}),
        "max_update": None if recreate or rolling is None else CountOrPercent.parse(rolling.max_update),
        "pause_on_failures": rolling.pause_on_failures if rolling else None,
        "paused": bool(spec.paused),
        "verification": Verification(
            verify.canary, verify.canary_image, parse_seconds(verify.timeout) if verify.timeout else None
        )
        if verify
        else Verification(),
        "removal_policy": spec.removal_policy or RemovalPolicy.REFUSE,
        "startup_taint": Taint(taint.key, taint.value, taint.effect) if taint else None,
    }


def _sources(fetch: FetchStrategy) -> Iterable[Source]:
    """Yield the sources in the order they are preferred: a platform's own, one for all, an image."""
    for platform in fetch.platforms or ():
        yield Source(platform.location, _ARCH[platform.arch], platform.sha256 or None)
    if fetch.anon_http:
        yield Source(fetch.anon_http.location, None, fetch.anon_http.sha256)
    if fetch.oci:
        secret = fetch.oci.pull_secret
        yield Source(
            f"oci://{fetch.oci.image}", None, member=fetch.oci.path, pull_secret=secret.name if secret else None
        )
    if fetch.image:
        yield Source(fetch.image.path, None, binary_sha256=fetch.image.sha256)


def _pairs(mapping: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(mapping.items()))


def is_for(shim: ShimView, node: NodeView, *, auto_provision: bool) -> bool:
    """Say whether a node is to have a Shim, whatever keeps it from being installed.

    With a nodeSelector: the Linux nodes that match. Without one: every Linux node, as runtime-class-manager has it,
    but for a Shim labelled as KWasm's default, which is for nodes that opted in by annotation. An annotation with
    any other value than ``true`` keeps every Shim off a node.
    """
    if shim.invalid or shim.deleting or node.operating_system != SUPPORTED_OS:
        return False
    wish = wish_of(node, auto_provision=auto_provision and shim.default)
    if node.opt_in is not None and wish is not Wish.IN:
        return False
    if shim.default and wish is Wish.IN:
        return True
    if shim.selector is None:
        return not shim.default
    labels = dict(node.labels)
    return all(labels.get(key) == value for key, value in shim.selector)


def wish_for(shim: ShimView, architecture: str, *, require_checksum: bool) -> ShimWish | Refusal:
    """Return what the installer is asked for on a node of this architecture, or why nothing is.

    The digest is over what is installed there: another source, handler or option makes another version, another
    rollout limit or the source of another architecture does not.
    """
    if shim.invalid:
        return Refusal.INVALID
    arch = _ARCH.get(architecture)
    source = next((one for one in shim.sources if one.arch in (arch, None)), None) if arch else None
    if source is None:
        return Refusal.NO_SOURCE
    if require_checksum and not is_pinned(source):
        return Refusal.UNVERIFIED
    content = [shim.handler, source.location, source.sha256, source.binary_sha256, source.member, list(shim.options)]
    canonical = json.dumps(content, separators=(",", ":"))
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:_DIGEST_LENGTH]
    return ShimWish(shim.name, shim.handler, digest, names.MANAGED_BY, (source,), dict(shim.options))


def wanted_on(node: NodeView, shims: Iterable[ShimView], *, auto_provision: bool) -> frozenset[str]:
    """Return the names of the Shims that a node is to have, whatever keeps them from being installed.

    ``kwasm`` stands for the legacy installer image: opted-in Linux nodes get it as long as no Shim is labelled as
    KWasm's default.
    """
    shims = tuple(shims)
    wanted = {shim.name for shim in shims if is_for(shim, node, auto_provision=auto_provision)}
    with_default = any(shim.default and not shim.invalid for shim in shims)
    opted_in = wish_of(node, auto_provision=auto_provision) is Wish.IN and node.operating_system == SUPPORTED_OS
    return frozenset(wanted if with_default or not opted_in else wanted | {KWASM})


def target_of(
    node: NodeView, shims: Iterable[ShimView], kwasm: str, *, auto_provision: bool, require_checksum: bool
) -> Target | None:
    """Return what a node is to have; None if nothing, and nothing of ours is on it that we could remove.

    A Shim that is refused for now (no checksum, nothing for this platform) changes nothing: what the node has of it
    stays. What is to go goes first, in a run of its own. ``kwasm`` is the digest of the legacy installer image, which
    has no uninstall and so never leads to a removal.
    """
    shims = tuple(shims)
    installed = installed_on(node)
    names_wanted = wanted_on(node, shims, auto_provision=auto_provision)
    kept = {name: digest for name, digest in installed.items() if name in names_wanted or name == KWASM}
    if len(kept) < len(installed):
        return Target(tuple(sorted(kept.items())))
    wanted = {KWASM: kwasm} if KWASM in names_wanted else {}
    for shim in shims:
        if shim.name in names_wanted:
            wish = wish_for(shim, node.architecture, require_checksum=require_checksum)
            digest = wish.digest if isinstance(wish, ShimWish) else installed.get(shim.name)
            wanted |= {shim.name: digest} if digest else {}
    return Target(tuple(sorted(wanted.items()))) if wanted else None


def is_pinned(source: Source) -> bool:
    """Say whether what a source gives is known beforehand, by a checksum or an image's digest."""
    return bool(source.sha256 or source.binary_sha256) or "@sha256:" in source.location
