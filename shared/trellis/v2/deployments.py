"""Views of WorkloadDeployments, WorkloadReplicaSets and Artifacts.

Pure. In: manifests of any content. Out: views. Called by ``snapshot``. Invariant: nothing raises. Source:
runtime-operator 2.7: counts of 0 are omitted; the counts of a WorkloadDeployment are the sum over its current and its
previous WorkloadReplicaSet, so only the status of the current one shows the state of a rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from trellis.v2.fields import items, mapping, number, text
from trellis.v2.objects import GROUP, Condition, Conditions, Meta, condition, view_conditions, view_meta
from trellis.v2.workloads import ARTIFACT, PartView, TemplateView, service_name, view_template

LABEL_DEPLOYMENT: Final = f"{GROUP}/workload-deployment"


@dataclass(frozen=True, slots=True)
class Replicas:
    """Counts of a status."""

    expected: int = 0
    current: int = 0
    ready: int = 0
    unavailable: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaSetView:
    """A WorkloadReplicaSet; ``replicas``: desired, None if not known; ``counts``: None before its first status."""

    meta: Meta
    replicas: int | None = None
    counts: Replicas | None = None
    spec: TemplateView = field(default_factory=TemplateView)
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


def follows(replica_set: ReplicaSetView, deployment: DeploymentView) -> bool:
    """Return whether a WorkloadReplicaSet has the template of its WorkloadDeployment, as far as the views show.

    The operator adds the name of the Service, and writes the images of Artifacts into the copy.
    """
    wanted = deployment.spec
    own = {part.name: part.image for part in replica_set.spec.parts}

    def copied(part: PartView) -> PartView:
        return replace(part, image=own.get(part.name, part.image)) if part.image.startswith(ARTIFACT) else part

    daemon = copied(wanted.daemon) if wanted.daemon is not None else None
    components = tuple(copied(part) for part in wanted.components)
    return replica_set.spec == replace(wanted, components=components, daemon=daemon, service=replica_set.spec.service)


def view_deployment(manifest: object) -> DeploymentView:
    """Return the view of a WorkloadDeployment."""
    spec, status = mapping(manifest, "spec"), mapping(manifest, "status")
    template = mapping(mapping(spec, "template"), "spec")
    replicas = number(spec, "replicas")
    artifacts = {text(item, "name"): text(mapping(item, "artifactFrom"), "name") for item in items(spec, "artifacts")}
    return DeploymentView(
        meta=view_meta(manifest),
        replicas=1 if replicas is None else replicas,
        policy=text(spec, "deployPolicy"),
        service=service_name(spec) or service_name(template),
        artifacts={name: found for name, found in artifacts.items() if name},
        spec=view_template(template),
        current=text(mapping(status, "currentReplicaSet"), "name"),
        previous=text(mapping(status, "previousReplicaSet"), "name"),
        counts=_counts(status),
        conditions=view_conditions(status),
    )


def view_replica_set(manifest: object) -> ReplicaSetView:
    """Return the view of a WorkloadReplicaSet."""
    spec, status = mapping(manifest, "spec"), mapping(manifest, "status")
    return ReplicaSetView(
        meta=view_meta(manifest),
        replicas=number(spec, "replicas"),
        counts=_counts(status),
        spec=view_template(mapping(mapping(spec, "template"), "spec")),
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
