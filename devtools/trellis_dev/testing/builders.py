"""Builders of test data: each returns a plain, valid object; a test sets only the fields that matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trellis.installer_api.spec import Source
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import FailedAttempt, JobState, JobView, NodeView

DIGEST = "d1d1d1d1d1d1d1d1"
OTHER_DIGEST = "d2d2d2d2d2d2d2d2"


def a_node(name: str = "node-1", **changes: Any) -> NodeView:  # noqa: ANN401 - fields of the view
    """Return a Linux node without opt-in; ``uid`` defaults to ``uid-<name>``."""
    node = NodeView(
        name=name,
        uid=f"uid-{name}",
        resource_version="7",
        architecture="amd64",
        runtime_version="containerd://2.4.2",
    )
    return replace(node, **changes)


def opted_in(node: NodeView) -> NodeView:
    """Return the node with the annotation of KWasm."""
    return replace(node, opt_in="true")


def verified_node(node: NodeView, digest: str = DIGEST, verified: str = "job") -> NodeView:
    """Return the node with the labels and annotations of a verified runtime."""
    return replace(
        node,
        provisioned=node.name,
        digest=digest,
        verified=verified,
        marked_uid=node.uid,
        wasm=None if verified == "job" else "ready",
    )


def failed(node: NodeView, digest: str = DIGEST, attempt: int = 1, at: int = 1000) -> NodeView:
    """Return the node with the record of a failed attempt."""
    record = FailedAttempt(digest, attempt, at).encode()
    return replace(node, failed_attempt=record, failure=f"attempt {attempt}: it broke", marked_uid=node.uid)


def a_job(node: NodeView, state: JobState = JobState.ACTIVE, **changes: Any) -> JobView:  # noqa: ANN401 - as above
    """Return an installer Job for the node, created at 1,000 s and, if finished, finished at 1,010 s."""
    job = JobView(
        namespace="trellis-installers",
        name=f"{node.name}-job",
        uid=f"job-{node.uid}",
        resource_version="8",
        node=node.name,
        node_uid=node.uid,
        digest=DIGEST,
        state=state,
        condition="BackoffLimitExceeded: it has failed" if state is JobState.FAILED else "",
        created_at=1000,
        started_at=1000,
        finished_at=None if state is JobState.ACTIVE else 1010,
    )
    return replace(job, **changes)


def a_shim(name: str = "spin", **changes: Any) -> ShimView:  # noqa: ANN401 - as above
    """Return a Shim for every Linux node at once, with a checksum; its handler has the same name."""
    shim = ShimView(
        name=name,
        uid=f"uid-{name}",
        resource_version="9",
        generation=1,
        handler=name,
        runtime_class=name,
        sources=(Source(f"https://example.com/{name}", "amd64", "ab" * 32),),
    )
    return replace(shim, **changes)
