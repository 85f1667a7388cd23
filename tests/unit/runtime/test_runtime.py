"""The start of a service with a slow or failing API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from trellis.config.settings import ServiceSettings, SettingsError
from trellis.kube.resources import NAMESPACES
from trellis.kube.transport import HttpRequest, Reply
from trellis.runtime.run import Base, EqualService, LedService, Service, Work, run_services
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube, status_reply


def service(kube: FakeKube | None, **settings: object) -> LedService:
    def compose(_: Base) -> Work:
        raise AssertionError("nothing is composed before the lease is held")

    return LedService(
        name="tested",
        settings=ServiceSettings.model_validate(settings),
        telemetry=setup("tested", metrics=Metrics()),
        compose=compose,
        namespaces={"trellis-system": {}, "other": {"a": "b"}},
        kube=kube,
    )


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(telemetry=setup("tested", metrics=Metrics()))


async def test_missing_namespaces_are_made_and_the_cluster_is_named_after_kube_system(kube: FakeKube) -> None:
    cluster = await service(kube)._cluster(kube)
    uid = (await kube.get(NAMESPACES, "kube-system"))["metadata"]["uid"]
    assert cluster == (uid[:8], uid)
    assert (await kube.get(NAMESPACES, "other"))["metadata"]["labels"]["a"] == "b"


async def test_an_account_that_may_not_see_namespaces_takes_them_to_exist(kube: FakeKube) -> None:
    kube.answer_next(
        9, lambda _: status_reply(403, "Forbidden", "not for you"), when=lambda request: "/other" in request.path
    )
    assert (await service(kube, cluster="c1")._cluster(kube)).name == "c1"


async def test_a_cluster_with_a_name_of_its_own_is_still_known_by_its_uid(kube: FakeKube) -> None:
    cluster = await service(kube, cluster="c1")._cluster(kube)
    assert cluster.uid == (await kube.get(NAMESPACES, "kube-system"))["metadata"]["uid"]


async def test_a_confined_service_asks_for_nothing_but_its_own_namespace(kube: FakeKube) -> None:
    own = kube.put(NAMESPACES, {"metadata": {"name": "trellis-system"}})["metadata"]["uid"]
    tested = service(kube)
    tested.confined = True
    assert await tested._cluster(kube) == (own[:8], own)
    requested = {request.path for request in kube.api.requests} - {"/readyz"}
    assert requested == {"/api/v1/namespaces/trellis-system"}


async def test_a_refusal_is_waited_out_and_shown_as_not_ready(kube: FakeKube) -> None:
    tested = service(kube)
    refused = asyncio.Event()

    def refuse(_: HttpRequest) -> Reply:
        refused.set()
        return status_reply(403, "Forbidden", "not for you")

    kube.answer_next(1, refuse, when=lambda request: "kube-system" in request.path)
    naming = asyncio.create_task(tested._cluster(kube))
    await refused.wait()
    async with asyncio.timeout(10):
        assert len((await naming).name) == 8


async def test_a_kubeconfig_that_cannot_be_used_is_one_settings_error(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    services = [service(None, kubeconfig=missing), service(None, kubeconfig=missing)]
    with pytest.raises(SettingsError, match=r"/nowhere\b"):
        await run_services(services, health_port=0)


@pytest.mark.parametrize("kind", [LedService, EqualService])
async def test_a_service_is_not_ready_before_its_parts_are(kube: FakeKube, kind: type[Service]) -> None:
    composed, stop = asyncio.Event(), asyncio.Event()

    def compose(_: Base) -> Work:
        composed.set()
        return Work([], {}, lambda: None, lambda: None)

    tested = kind(
        name="tested",
        settings=ServiceSettings(nats_url="nats://127.0.0.1:1"),
        telemetry=setup("tested", metrics=Metrics()),
        compose=compose,
        namespaces={"trellis-system": {}},
        kube=kube,
    )
    kube.health = tested.health
    running = asyncio.create_task(tested.run(stop))
    async with asyncio.timeout(10):
        while not composed.is_set():
            await asyncio.sleep(0)
            assert not tested.health.readiness().ok
    for _ in range(20):
        await asyncio.sleep(0)
        assert not tested.health.readiness().ok
    assert [reason.partition(":")[0] for reason in tested.health.readiness().reasons] == ["bus"]
    assert set(tested.health.parts()) == {"bus", "kubernetes"} | ({"lease trellis-tested"} & set(tested.health.parts()))
    stop.set()
    await running
