"""Effects for a Shim whose RuntimeClass the API server refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from provisioner.cache import Cache
from provisioner.domain.shim_decide import ApplyRuntimeClass, WriteStatus
from provisioner.domain.shim_resources import make_runtime_class, view_runtime_class
from provisioner.settings import Settings
from provisioner.shim_apply import ShimEffects
from trellis.kube.errors import Call, Conflict, Invalid, KubeError
from trellis.kube.recorder import EventRecorder
from trellis.kube.resources import RUNTIME_CLASSES, SHIMS, Resource
from trellis.provisioning.shim_status import Condition, Status
from trellis.provisioning.shims import view_shim
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube

SPEC: dict[str, Any] = {
    "fetchStrategy": {"anonHttp": {"location": "https://example.com/spin"}},
    "runtimeClass": {"name": "spin", "handler": "spin"},
    "rolloutStrategy": {"type": "recreate"},
}
STATUS = Status(conditions=(Condition("Degraded", "True", "ChecksumMissing", "no checksum", "2026-01-31T12:00:00Z"),))
CALL = Call("CREATE", "RuntimeClass", "runtimeclasses", name="spin")


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(telemetry=setup("test", metrics=Metrics()))


@dataclass
class Tried:
    """The result: the exception, the reason for refused RuntimeClasses, and whether the status was written."""

    raised: type[KubeError] | None
    refused: str
    written: bool


async def trying(kube: FakeKube, monkeypatch: pytest.MonkeyPatch, error: KubeError | None) -> Tried:
    """Write a RuntimeClass, which the API server may refuse, and a status."""
    shim = view_shim(kube.put(SHIMS, {"metadata": {"name": "spin"}, "spec": SPEC}))
    create = kube.create

    async def refusing(res: Resource, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if res is RUNTIME_CLASSES and error is not None:
            raise error
        return await create(res, *args, **kwargs)

    monkeypatch.setattr(kube, "create", refusing)
    cache = Cache(kube, Settings(), {}, {})
    cache.class_refused("spin", "as before")
    effects = ShimEffects(kube, EventRecorder(kube, component="test"), cache)
    raised = None
    try:
        await effects.apply([ApplyRuntimeClass(shim, None), WriteStatus(shim, STATUS)])
    except KubeError as met:
        raised = type(met)
    [found] = kube.objects(SHIMS)
    return Tried(raised, cache.class_refusal("spin"), "status" in found)


async def test_the_status_is_written_though_the_runtime_class_is_refused(
    kube: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = await trying(kube, monkeypatch, Invalid(CALL, status=422, reason="Invalid", message="metadata.name"))
    assert tried.raised is Invalid  # so that it is tried again
    assert tried.written
    assert "metadata.name" in tried.refused


async def test_a_conflict_is_no_refusal(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = await trying(kube, monkeypatch, Conflict(CALL, status=409, reason="Conflict", message="changed"))
    assert tried == Tried(Conflict, "as before", written=False)


async def test_a_runtime_class_that_is_taken_is_no_trouble_any_more(
    kube: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await trying(kube, monkeypatch, None) == Tried(None, "", written=True)


FULL = {
    "overhead": {"podFixed": {"memory": "16Mi"}},
    "scheduling": {"nodeSelector": {"tier": "edge"}, "tolerations": [{"operator": "Exists"}]},
}


@pytest.mark.parametrize(
    ("former", "runtime_class"),
    [
        pytest.param({"metadata": {}}, FULL, id="of nobody, and empty"),
        pytest.param({"metadata": {"labels": {"team": "a"}}, **FULL}, {}, id="of nobody, and full"),
        pytest.param({"metadata": {"labels": {"team": "a"}, "owned": True}, **FULL}, {}, id="of the Shim, and full"),
        pytest.param({"metadata": {"owned": True}}, FULL, id="of the Shim, and empty"),
    ],
)
async def test_a_runtime_class_gets_the_fields_of_a_new_one(
    kube: FakeKube, former: dict[str, Any], runtime_class: dict[str, Any]
) -> None:
    spec = SPEC | {"runtimeClass": {**SPEC["runtimeClass"], **runtime_class}}
    shim = view_shim(kube.put(SHIMS, {"metadata": {"name": "spin"}, "spec": spec}))
    wanted = make_runtime_class(shim)
    metadata = {"name": "spin", **former["metadata"]}
    if metadata.pop("owned", False):
        metadata["ownerReferences"] = wanted["metadata"]["ownerReferences"]
    stored = kube.put(RUNTIME_CLASSES, former | {"handler": "spin", "metadata": metadata})
    effects = ShimEffects(kube, EventRecorder(kube, component="test"), Cache(kube, Settings(), {}, {}))
    await effects.apply([ApplyRuntimeClass(shim, view_runtime_class(stored))])
    [found] = kube.objects(RUNTIME_CLASSES)
    assert found["metadata"]["uid"] == stored["metadata"]["uid"]
    assert {name: found.get(name) for name in FULL} == {name: wanted.get(name) for name in FULL}
    assert found["metadata"]["labels"] == wanted["metadata"]["labels"] | metadata.get("labels", {})
    assert found["metadata"]["ownerReferences"] == wanted["metadata"]["ownerReferences"]
