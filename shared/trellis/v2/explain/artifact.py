"""State of an Artifact, and its cause.

Pure. In: an Artifact in its cluster, the answer of its registry. Out: health, cause, page. Called by ``explain`` and
``status``. Source: runtime-operator 2.7 copies ``spec.image`` to the status and checks nothing; with
``-disable-artifact-controller`` another controller has to write the status. It reads ``Published`` and ``artifactUrl``
only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trellis.read_model.explain.page import Explanation, Line, Rank
from trellis.read_model.explain.subject import Beside, Subject, cause_of
from trellis.read_model.health import Health, Verdict
from trellis.v2.cluster import Cluster
from trellis.v2.deployments import ArtifactView
from trellis.v2.explain.operator import operator_lines, source_line, verdict_with_operator
from trellis.v2.explain.starting import image_trouble, untrusted_resolution
from trellis.v2.explain.text import quoted, unknown
from trellis.v2.explain.workload import WANTED, manifest_of
from trellis.v2.fields import listed
from trellis.v2.images import ImageKey, ImageState
from trellis.v2.objects import condition
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Part, Snapshot
from trellis.v2.workloads import PartView

SUBJECT: Final = Subject("Artifact", "artifact", "kubectl get artifacts.runtime.wasmcloud.dev -A", WANTED)
_SHOWN: Final = 5


def explain_artifact(snapshot: Snapshot, artifact: ArtifactView, beside: Beside) -> Explanation:
    """Return the page of an Artifact."""
    chain = [*_chain(Cluster(snapshot), artifact)]
    return SUBJECT.page(manifest_of(artifact.meta), chain, beside, verdict_with_operator(chain))


def artifact_health(cluster: Cluster, artifact: ArtifactView) -> Verdict:
    """Return the health of an Artifact."""
    return verdict_with_operator([*_chain(cluster, artifact)])


def artifact_cause(cluster: Cluster, artifact: ArtifactView) -> Line | None:
    """Return the cause of an Artifact that is not healthy, None if it is: as its page has it."""
    return cause_of(_chain(cluster, artifact))


def _chain(cluster: Cluster, artifact: ArtifactView) -> Iterator[Line]:
    cluster = cluster.of_namespace(artifact.meta.namespace)
    yield Line("artifact", f"{artifact.meta.key}, image {artifact.image or 'none'}", ok=True)
    users = [
        item.meta.name
        for item in cluster.snapshot.deployments
        if item.meta.namespace == artifact.meta.namespace and artifact.meta.name in item.artifacts.values()
    ]
    used = listed(sorted(users), _SHOWN)
    if artifact.meta.deleting:
        yield _deleting(cluster, used)
        return
    yield from _published(cluster, artifact, used)
    yield from _registry(cluster, artifact)
    if cluster.snapshot.knows(Part.DEPLOYMENTS):
        yield Line("used by", used or "no WorkloadDeployment")
    else:
        yield Line("used by", f"unknown: {unknown(cluster, Part.DEPLOYMENTS)}")


def _deleting(cluster: Cluster, used: str) -> Line:
    if not used:
        reason = unknown(cluster, Part.DEPLOYMENTS)
        text = f"it is being deleted{f'; its users are unknown: {reason}' if reason else ''}"
        return Line("deletion", text, ok=False, reason=Reason.DELETING)
    text = f"its deletion waits: WorkloadDeployment {used} uses it"
    do = "remove it from spec.artifacts of these WorkloadDeployments"
    return Line("deletion", text, False, do, Rank.CAUSE, Reason.ARTIFACT_IN_USE, Health.PROGRESSING)


def _published(cluster: Cluster, artifact: ArtifactView, used: str) -> Iterator[Line]:
    reported = condition(artifact.conditions, "Published")
    if not reported.status:
        yield from _no_status(cluster, artifact, used)
        return
    if not reported.true:
        text = f"it is not published{quoted(reported.message or reported.status)}"
        yield Line("published", text, False, "", Rank.CAUSE, Reason.ARTIFACT_NOT_PUBLISHED)
        return
    if not artifact.url:
        text = "its condition Published is True, and status.artifactUrl, which WorkloadDeployments use, is empty"
        do = "set it by the controller that published it"
        yield Line("published", text, False, do, Rank.CAUSE, Reason.ARTIFACT_NOT_PUBLISHED)
        return
    if artifact.observed is not None and artifact.observed < artifact.meta.generation:
        text = f"generation {artifact.observed} of {artifact.meta.generation} is published"
        yield Line("published", text, ok=False, reason=Reason.NOT_OBSERVED)
        return
    other = f" as {artifact.url}" if artifact.url != artifact.image else ""
    yield Line("published", f"published{other}; WorkloadDeployments use it within a minute", ok=True)


def _no_status(cluster: Cluster, artifact: ArtifactView, used: str) -> Iterator[Line]:
    if not cluster.older(artifact.meta.created, cluster.snapshot.timings.settle):
        yield Line("published", "the operator has not reconciled it yet", ok=False, reason=Reason.WAITING)
        return
    yield from operator_lines(cluster)
    waits = f", so WorkloadDeployment {used} waits" if used else ""
    text = f"no controller has published it{waits}: it has no condition Published"
    do = (
        "check that the runtime-operator runs; with -disable-artifact-controller, another controller has to write its "
        "status: artifactUrl and the condition Published"
    )
    yield Line("published", text, False, do, Rank.CAUSE, Reason.ARTIFACT_NOT_PUBLISHED)


def _registry(cluster: Cluster, artifact: ArtifactView) -> Iterator[Line]:
    image = artifact.url or artifact.image
    answer = cluster.snapshot.images.get(ImageKey(artifact.meta.namespace, image, artifact.secret))
    if answer is None:
        yield Line("registry", "not asked: no controller checks that the image exists (--v2-registry)")
        return
    trouble = image_trouble(image, answer, PartView("", image, artifact.secret))
    if trouble is not None:
        yield trouble
    elif answer.state is ImageState.FOUND:
        plain = "; its registry speaks plain http, and hosts require https by default" if answer.plain else ""
        yield Line("registry", f"{image} exists{plain}", ok=True)
    else:
        yield source_line(
            "registry", f"{image} not read{quoted(answer.detail or 'no answer')}", untrusted_resolution(answer)
        )
