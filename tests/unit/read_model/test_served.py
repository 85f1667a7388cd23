"""A kind that is not served is unknown; only a CRD that is not there proves that there are no objects."""

from __future__ import annotations

import pytest

from support.cluster.not_served import define, refuse
from trellis.kube.crd_ownership import Place
from trellis.kube.errors import Forbidden, NotFound, Unavailable
from trellis.kube.resources import ALL, DEFINITIONS, HOST_CONFIGS, SERVICES
from trellis.read_model.reading.served import NotServedError, list_served
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube, status_reply


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(telemetry=setup("test", metrics=Metrics()))


async def test_a_kind_that_is_not_defined_has_no_objects(kube: FakeKube) -> None:
    refuse(kube, HOST_CONFIGS)
    assert await list_served(kube, HOST_CONFIGS) is None


async def test_a_kind_that_is_defined_and_not_served_is_unknown_and_named(kube: FakeKube) -> None:
    define(kube, served=False)
    refuse(kube, HOST_CONFIGS)
    with pytest.raises(NotServedError, match=r"wasmcloudhostconfigs\.k8s\.wasmcloud\.dev") as raised:
        await list_served(kube, HOST_CONFIGS)
    assert raised.value.place is Place.CURRENT


async def test_a_kind_of_kubernetes_itself_always_has_a_list(kube: FakeKube) -> None:
    refuse(kube, SERVICES)
    with pytest.raises(NotFound):
        await list_served(kube, SERVICES)


async def test_a_crd_that_may_not_be_read_proves_nothing() -> None:
    kube = FakeKube(resources=tuple(item for item in ALL if item is not HOST_CONFIGS))
    kube.answer_next(
        9, lambda _: status_reply(403, "Forbidden", "no"), when=lambda item: DEFINITIONS.plural in item.path
    )
    with pytest.raises(NotServedError, match="unknown") as raised:
        await list_served(kube, HOST_CONFIGS)
    assert raised.value.place is None


async def test_an_unreachable_server_is_reported_with_the_requested_kind(kube: FakeKube) -> None:
    kube.fail_next(99)
    with pytest.raises(Unavailable, match="WasmCloudHostConfig"):
        await list_served(kube, HOST_CONFIGS)


@pytest.mark.parametrize(("status", "reason", "error"), [(403, "Forbidden", Forbidden), (500, "Error", Unavailable)])
async def test_another_refusal_is_an_error_also_where_no_crd_is(
    kube: FakeKube, status: int, reason: str, error: type[Exception]
) -> None:
    refuse(kube, HOST_CONFIGS, status, reason)
    with pytest.raises(error):
        await list_served(kube, HOST_CONFIGS)
