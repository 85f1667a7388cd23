"""The readiness note about Services without a host group is removed while host groups are unknown."""

from __future__ import annotations

from unittest.mock import Mock

from service_reflector.app import compose
from service_reflector.domain.ownership import Undecided
from service_reflector.domain.snapshot import Preserved
from service_reflector.reconciler import PRESERVED
from service_reflector.settings import Settings
from trellis.kube.resources import HOST_CONFIGS
from trellis.lattice.domain.service_views import ServiceView
from trellis.runtime.run import Base
from trellis.telemetry import Metrics, setup
from trellis.telemetry.health import Health
from trellis_dev.fakes.fake import FakeKube

SERVICE = ServiceView("g", "shop", "uid-shop", "1", "shop", "east/1")


async def test_no_grace_is_noted_while_the_kind_is_not_served() -> None:
    telemetry, health, bus = setup("test", metrics=Metrics()), Health("test"), Mock()
    work = compose(Settings(), Base(telemetry, health, FakeKube(telemetry=telemetry), bus, "east"))
    [cache] = [run.__self__.cache for run in work.queues.values() if hasattr(run, "__self__")]
    [groups] = [informer for informer in work.informers if informer.resource is HOST_CONFIGS]
    groups.synced.set()
    cache.preserved[SERVICE.key] = Preserved(SERVICE, Undecided.GROUP_MISSING, "deleted unless there is one in 300 s")
    cache.by_annotated_lattice[SERVICE.lattice], cache.services[SERVICE.key] = {SERVICE.key}, SERVICE
    health.note(PRESERVED, cache.preserved_text())
    assert any("300 s" in note for note in health.notes())
    groups.lacking = Mock()
    assert groups.needed is not None
    assert groups.needed() is not None, "the Service needs the kind"
    assert health.notes() == ()
