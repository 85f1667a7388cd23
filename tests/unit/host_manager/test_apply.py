"""Writes about a group: their order, and what a refusal means."""

from __future__ import annotations

import contextlib
import copy
import time
from typing import Any

import pytest

from host_manager.apply import Effects
from host_manager.domain.children import make_children, template_label_for
from host_manager.domain.decide import ApplyChild, RecyclePod, RetryPods
from host_manager.domain.group import LATEST, Inputs
from host_manager.domain.pods import PodView
from host_manager.domain.snapshot import Head
from host_manager.gather import Cache
from support.lattices.host_groups import desired
from trellis import names
from trellis.kube.errors import KubeError, NotFound
from trellis.kube.recorder import EventRecorder
from trellis.kube.resources import DEPLOYMENTS, NAMESPACES, ROLE_BINDINGS
from trellis.kube.transport import HttpRequest
from trellis.telemetry import setup
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube, status_reply

KEY = "g/group"
HEAD = Head("g", "group", "uid-1", "1", 1)


@pytest.fixture
def kube() -> FakeKube:
    made = FakeKube(telemetry=setup("test", metrics=Metrics()))
    made.put(NAMESPACES, {"metadata": {"name": "g"}})
    return made


@pytest.fixture
def effects(kube: FakeKube) -> Effects:
    return Effects(kube, EventRecorder(kube, component="test"), Cache(kube, {}, {}, 60.0))


def children() -> list[ApplyChild]:
    made = desired(LATEST)
    template_label = template_label_for(made.group, Inputs(), None, latest_requested=False)
    return [ApplyChild(child, None) for child in make_children(made, template_label, budget=True)]


def is_binding(request: HttpRequest) -> bool:
    return ROLE_BINDINGS.plural in request.path


def unknown_object(_: HttpRequest) -> Any:
    return status_reply(404, "NotFound", 'roles.rbac.authorization.k8s.io "group" not found')


async def test_a_binding_is_created_after_its_role_and_retried_until_the_server_knows_the_role(
    kube: FakeKube, effects: Effects
) -> None:
    """A cache of the server checks what a binding gives, unless its maker is an administrator."""
    kube.answer_next(2, unknown_object, when=is_binding)
    await effects.apply(KEY, children())
    written = [request.path.split("/")[-2] for request in kube.writes]
    assert written.count("rolebindings") == 3
    assert written.index("roles") < written.index("rolebindings")


async def test_a_binding_whose_role_does_not_come_is_an_error_of_the_run(kube: FakeKube, effects: Effects) -> None:
    kube.answer_next(10**6, unknown_object, when=is_binding)
    with pytest.raises(NotFound):
        await effects.apply(KEY, children())


@pytest.mark.parametrize(("status", "paused"), [(201, True), (404, True), (409, False), (429, False), (504, False)])
async def test_only_an_accepted_eviction_starts_the_pause_before_the_next_one(
    kube: FakeKube, effects: Effects, status: int, paused: bool
) -> None:
    """An eviction that a budget forbids for a moment, or whose request fails, must not cost two minutes."""
    kube.answer_next(10**6, lambda _: status_reply(status, "Answer", "x"), when=lambda item: "eviction" in item.path)
    pod = PodView("g", "group-1", "uid-2", "1", "group", ready=True)
    action = RecyclePod(HEAD, pod, "restarted")
    with contextlib.nullcontext() if paused else pytest.raises(KubeError):
        await effects.apply(KEY, [action])
    assert effects.cache.lattices.recycling.may(KEY, time.monotonic()) is not paused


@pytest.mark.parametrize("changed", [False, True], ids=["as it was read", "changed meanwhile"])
async def test_a_deployment_of_refused_pods_is_annotated_only_if_unchanged(
    kube: FakeKube, effects: Effects, *, changed: bool
) -> None:
    read = kube.put(DEPLOYMENTS, {"metadata": {"name": "group", "namespace": "g"}, "spec": {"replicas": 1}})
    found = copy.deepcopy(dict(read))
    if changed:
        kube.put(DEPLOYMENTS, found | {"spec": {"replicas": 2}})
    await effects.apply(KEY, [RetryPods(found, "2026-01-01T00:00:00Z")])
    [deployment] = kube.objects(DEPLOYMENTS)
    annotations = deployment["metadata"].get("annotations") or {}
    assert (names.ANNOTATION_PODS_RETRIED in annotations) is not changed
    assert (effects.cache.retries.left(KEY) is None) is changed
    assert deployment["spec"] == {"replicas": 2 if changed else 1}
