"""A refused update of a Node counts if it is about the Job whose result is to be written, and not an older one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from provisioner.pods import Pods
from trellis.kube.client import Kube
from trellis.kube.reader import Listing
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import EVENTS, NAMESPACES, Resource
from trellis.provisioning.reasons import NODE_UPDATE_REFUSED
from trellis.provisioning.views import JobState, JobView
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import a_job, a_node

NODE = a_node("a")
FORMER = a_job(NODE, JobState.COMPLETE, uid="former")
JOB = replace(FORMER, uid="current")


@dataclass
class OfOneNode:
    """An API server that has no Events about other objects: the one in memory knows no selector of these."""

    kube: FakeKube

    async def list(self, res: Resource, namespace: str, *, field_selector: str) -> Listing:
        assert NODE.uid in field_selector
        return await self.kube.list(res, namespace)


async def test_a_refusal_counts_for_the_job_that_it_is_about() -> None:
    kube = FakeKube(telemetry=setup("test", metrics=Metrics()))
    kube.put(NAMESPACES, {"metadata": {"name": "default"}})
    pods, recorder = Pods(cast("Kube", OfOneNode(kube))), EventRecorder(kube, component="node-watcher")
    await refuse(recorder, FORMER)
    assert await pods.update_refused(NODE, FORMER) == "no team label"
    assert not await pods.update_refused(NODE, JOB)
    await refuse(recorder, JOB)
    assert await pods.update_refused(NODE, JOB) == "no team label"
    assert len((await kube.list(EVENTS, "default")).items) == 1


async def refuse(recorder: EventRecorder, job: JobView) -> None:
    await recorder.record(
        regarding=ObjectRef("v1", "Node", NODE.name, NODE.uid),
        type="Warning",
        reason=NODE_UPDATE_REFUSED,
        message="no team label",
        related=ObjectRef("batch/v1", "Job", job.name, job.uid, job.namespace),
    )
