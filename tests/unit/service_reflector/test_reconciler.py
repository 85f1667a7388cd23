"""One run of a key makes an application's Service and its EndpointSlices, and publishes them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

from service_reflector.apply import Effects
from service_reflector.domain.service_options import options_of
from service_reflector.domain.snapshot import Claim, Snapshot
from service_reflector.reconciler import Reconciler
from service_reflector.timings import Timings
from support.wadm.manifests import ANY_HOST, capability, link, manifest
from trellis import names
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.services import ServiceReflected
from trellis.kube.resources import ENDPOINT_SLICES, SERVICES
from trellis.lattice.domain.manifests import read_application
from trellis.lattice.domain.preserved import read_preserved
from trellis.lattice.domain.provider_hosts import ProviderHosts
from trellis.lattice.domain.service_views import PodView, view_service, view_slice
from trellis.telemetry import Metrics, TraceSpans, setup
from trellis.telemetry.health import Health
from trellis_dev.fakes.fake import FakeKube

APPLICATION = read_application(manifest("shop", capability("httpserver", link("0.0.0.0:8080"), ANY_HOST)))
POD = PodView(
    "default", "host-1", "uid-pod", "group", "node", ("10.0.0.1",), serving=True, terminating=False, labels=()
)


class World:
    """A Cache that holds what was written, as informers do."""

    def __init__(self) -> None:
        self.kube, self.telemetry = FakeKube(), setup("test", metrics=Metrics())
        self.queue = KeyedQueue[str](workers=1, name="applications", telemetry=self.telemetry)
        self.services: dict[str, Any] = {}
        self.slices: dict[str, Any] = {}
        self.published: dict[str, Any] = {}
        self.controller, self.remove_finalizers, self.timings = None, False, Timings()
        self.looks = 0

    def preserved_text(self) -> str:
        return ""

    async def snapshot(self, _: str) -> Snapshot:
        self.looks += 1
        claim = Claim("east/1", APPLICATION, options_of(APPLICATION), (POD,), {}, ProviderHosts(), None)
        services = {service.name: service for service in self.services.values()}
        return Snapshot("default", "shop", (claim,), (), services, {"shop": tuple(self.slices.values())}, sure=True)

    def wrote(self, views: dict[str, Any], view: Any) -> Any:
        def taken(made: dict[str, Any], _: object) -> None:
            views[f"default/{made['metadata']['name']}"] = view(made)
            self.queue.add("default/shop")

        return SimpleNamespace(wrote=taken)


async def test_one_run_makes_the_service_and_its_endpoints_and_publishes_it() -> None:
    world, bus = World(), AsyncMock()
    services, slices = world.wrote(world.services, view_service), world.wrote(world.slices, view_slice)
    recorder = AsyncMock()
    parts: list[Any] = [recorder, world, services, slices, None, Mock()]
    effects = Effects(world.kube, *parts)
    traces, health = TraceSpans[str](world.telemetry), Health("test")
    reflect = Reconciler(cast("Any", world), effects, bus, traces, health, world.queue)
    work = asyncio.create_task(world.queue.work(reflect.run))
    world.queue.add("default/shop")
    await world.queue.wait_idle()
    assert world.looks == 2, "what it wrote itself causes no second run"
    [event] = [call.kwargs for call in recorder.record.await_args_list]
    assert (event["type"], event["reason"], event["regarding"].kind) == ("Normal", "ServiceReflected", "Service")
    [service], [endpoints] = world.kube.objects(SERVICES), world.kube.objects(ENDPOINT_SLICES)
    kept = read_preserved(endpoints["metadata"]["annotations"][names.ANNOTATION_PRESERVED])
    assert kept is not None
    assert kept.uid == service["metadata"]["uid"]
    assert "finalizers" not in service["metadata"]
    assert endpoints["endpoints"][0]["addresses"] == ["10.0.0.1"]
    [published] = [call.args[0] for call in bus.publish.await_args_list]
    assert isinstance(published, ServiceReflected)
    assert (published.uid, published.ports) == (service["metadata"]["uid"], [8080])
    writes = len(world.kube.writes)
    world.queue.add("default/shop")
    await world.queue.wait_idle()
    assert (len(world.kube.writes), bus.publish.await_count) == (writes, 1), "nothing is left for a second run"
    work.cancel()
    await asyncio.wait({work})
