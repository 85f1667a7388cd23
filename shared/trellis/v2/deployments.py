"""Views of WorkloadDeployments, WorkloadReplicaSets and Artifacts.

Pure. In: manifests of any content. Out: views. Called by ``snapshot``. Invariant: nothing raises. Source:
runtime-operator 2.7: counts of 0 are omitted; the counts of a WorkloadDeployment are the sum over its current and its
previous WorkloadReplicaSet, so only the status of the current one shows the state of a rollout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from trellis.v2.fields import items, mapping, number, text
from trellis.v2.objects import GROUP, Condition, Conditions, Meta, condition, view_conditions, view_meta
from trellis.v2.workloads import ARTIFACT, TemplateView, service_name, view_template

LABEL_DEPLOYMENT: Final = f"{GROUP}/workload-deployment"
_DEEPEST: Final = 30
"""Levels of a template that are compared; the schema has ten."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """Counts of a status."""

    expected: int = 0
    current: int = 0
    ready: int = 0
    unavailable: int = 0


@dataclass(frozen=True, slots=True)
class TemplateDigest:
    """Identity of a template. ``rest``: digest of everything besides its Service and its images."""

    rest: str = ""
    service: str = ""
    images: tuple[str, ...] = ()

    def fits(self, copy: TemplateDigest) -> bool:
        """Return whether the operator made ``copy`` from it: with an image in place of the name of each Artifact."""
        if (self.rest, self.service, len(self.images)) != (copy.rest, copy.service, len(copy.images)):
            return False
        pairs = zip(self.images, copy.images, strict=True)
        return all(image == other or image.startswith(ARTIFACT) for image, other in pairs)


@dataclass(frozen=True, slots=True)
class ReplicaSetView:
    """A WorkloadReplicaSet; ``replicas``: desired, None if not known; ``counts``: None before its first status."""

    meta: Meta
    replicas: int | None = None
    counts: Replicas | None = None
    spec: TemplateView = field(default_factory=TemplateView)
    template: TemplateDigest = field(default_factory=TemplateDigest)
    conditions: Conditions = field(default_factory=dict)

    @property
    def deployment(self) -> str:
        """Name of its WorkloadDeployment."""
        return self.meta.owner_name or self.meta.labels.get(LABEL_DEPLOYMENT, "")


@dataclass(frozen=True, slots=True)
class DeploymentView:
    """A WorkloadDeployment. ``artifacts``: names of Artifacts by the names in its spec.

    ``current``, ``previous``: names of its WorkloadReplicaSets; ``counts``: None before its first status.
    """

    meta: Meta
    replicas: int = 1
    policy: str = ""
    service: str = ""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    spec: TemplateView = field(default_factory=TemplateView)
    template: TemplateDigest = field(default_factory=TemplateDigest)
    current: str = ""
    previous: str = ""
    counts: Replicas | None = None
    conditions: Conditions = field(default_factory=dict)

    def condition(self, kind: str) -> Condition:
        """Return a condition."""
        return condition(self.conditions, kind)


@dataclass(frozen=True, slots=True)
class ArtifactView:
    """An Artifact. ``url``: the image that WorkloadDeployments use, "" if it is not published."""

    meta: Meta
    image: str = ""
    secret: str = ""
    url: str = ""
    observed: int | None = None
    conditions: Conditions = field(default_factory=dict)

    @property
    def published(self) -> bool:
        """True if WorkloadDeployments can use it: the operator reads the condition Published only."""
        return condition(self.conditions, "Published").true


def view_deployment(manifest: object) -> DeploymentView:
    """Return the view of a WorkloadDeployment."""
    spec, status = mapping(manifest, "spec"), mapping(manifest, "status")
    template = mapping(mapping(spec, "template"), "spec")
    replicas = number(spec, "replicas")
    artifacts = {text(item, "name"): text(mapping(item, "artifactFrom"), "name") for item in items(spec, "artifacts")}
    service = service_name(spec) or service_name(template)
    return DeploymentView(
        meta=view_meta(manifest),
        replicas=1 if replicas is None else replicas,
        policy=text(spec, "deployPolicy"),
        service=service,
        artifacts={name: found for name, found in artifacts.items() if name},
        spec=view_template(template),
        template=_digest(template, service),
        current=text(mapping(status, "currentReplicaSet"), "name"),
        previous=text(mapping(status, "previousReplicaSet"), "name"),
        counts=_counts(status),
        conditions=view_conditions(status),
    )


def view_replica_set(manifest: object) -> ReplicaSetView:
    """Return the view of a WorkloadReplicaSet."""
    spec, status = mapping(manifest, "spec"), mapping(manifest, "status")
    template = mapping(mapping(spec, "template"), "spec")
    return ReplicaSetView(
        meta=view_meta(manifest),
        replicas=number(spec, "replicas"),
        counts=_counts(status),
        spec=view_template(template),
        template=_digest(template, service_name(template)),
        conditions=view_conditions(status),
    )


def view_artifact(manifest: object) -> ArtifactView:
    """Return the view of an Artifact."""
    spec, status = mapping(manifest, "spec"), mapping(manifest, "status")
    return ArtifactView(
        meta=view_meta(manifest),
        image=text(spec, "image"),
        secret=text(mapping(spec, "imagePullSecret"), "name"),
        url=text(status, "artifactUrl"),
        observed=number(status, "observedGeneration"),
        conditions=view_conditions(status),
    )


def _counts(status: Mapping[str, object]) -> Replicas | None:
    found = mapping(status, "replicas")
    if not found:
        return None
    kinds = ("expected", "current", "ready", "unavailable")
    return Replicas(**{kind: number(found, kind) or 0 for kind in kinds})


def _digest(template: Mapping[str, object], service: str) -> TemplateDigest:
    parts = [*items(template, "components"), mapping(template, "service")]
    rest = {key: value for key, value in template.items() if key not in {"kubernetes", "components", "service"}}
    rest["parts"] = [{key: value for key, value in part.items() if key != "image"} for part in parts]
    found = repr(_canonical(rest, _DEEPEST))
    digest = hashlib.blake2b(found.encode("utf-8", errors="replace"), digest_size=8).hexdigest()
    return TemplateDigest(digest, service, tuple(text(part, "image") for part in parts))


def _canonical(value: object, levels: int) -> object:
    """Return a value without an order of keys, and without the empty fields that Go omits."""
    if not levels:
        return "…"
    if isinstance(value, dict):
        pairs = ((str(key), _canonical(item, levels - 1)) for key, item in value.items())
        return tuple(sorted((pair for pair in pairs if pair[1]), key=lambda pair: pair[0]))
    if isinstance(value, list):
        return tuple(_canonical(item, levels - 1) for item in value)
    return value
