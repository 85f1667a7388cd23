"""``trellis status`` shows a kind that cannot be listed as unknown, and not as one without objects."""

from __future__ import annotations

import pytest

from support.cluster.not_served import define, refuse
from trellis.kube.errors import Forbidden, KubeError, NotFound
from trellis.kube.resources import HOST_CONFIGS, WASM_CONTROLLERS
from trellis.telemetry import Metrics, setup
from trellis_cli.controllers.table import read_controllers
from trellis_cli.status.row import Part
from trellis_cli.status.served import list_or_row
from trellis_dev.fakes.fake import FakeKube

ROW, UNKNOWN = "hosts", {"groups": None}


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(telemetry=setup("test", metrics=Metrics()))


async def test_a_kind_that_is_not_defined_has_no_objects(kube: FakeKube) -> None:
    refuse(kube, HOST_CONFIGS)
    assert await list_or_row(kube, HOST_CONFIGS, ROW, UNKNOWN) is None


async def test_a_kind_that_is_defined_and_not_served_is_unknown(kube: FakeKube) -> None:
    define(kube, served=False)
    refuse(kube, HOST_CONFIGS)
    found = await list_or_row(kube, HOST_CONFIGS, ROW, UNKNOWN)
    assert isinstance(found, Part)
    assert found.problem
    assert found.data == UNKNOWN


@pytest.mark.parametrize(
    ("status", "reason", "error"),
    [(404, "NotFound", NotFound), (403, "Forbidden", Forbidden), (500, "InternalError", KubeError)],
)
async def test_a_refused_list_of_a_kind_that_exists_is_an_error(
    kube: FakeKube, status: int, reason: str, error: type[KubeError]
) -> None:
    define(kube, served=True)
    refuse(kube, HOST_CONFIGS, status, reason)
    with pytest.raises(error):
        await list_or_row(kube, HOST_CONFIGS, ROW, UNKNOWN)


async def test_the_row_of_controllers_is_unknown_too(kube: FakeKube) -> None:
    define(kube, served=False)
    refuse(kube, WASM_CONTROLLERS)
    found = await read_controllers(kube, "trellis-system")
    assert found.problem
    assert found.data["count"] is None
