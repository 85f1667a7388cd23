"""``trellis status`` shows a kind that cannot be listed as unknown, and not as one without objects."""

from __future__ import annotations

import pytest

from trellis.crds.kinds import APPLICATIONS, KINDS, make_definition
from trellis.kube.errors import Forbidden, KubeError, NotFound
from trellis.kube.fake import FakeKube, status_reply
from trellis.kube.resources import DEFINITIONS, HOST_CONFIGS, WASM_CONTROLLERS
from trellis.telemetry import Metrics, setup
from trellis_bundle.controllers import read_controllers
from trellis_bundle.part import Part
from trellis_bundle.served import list_served

ROW, UNKNOWN = "hosts", {"groups": None}


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(telemetry=setup("test", metrics=Metrics()))


def refuse(kube: FakeKube, status: int, reason: str, plural: str = HOST_CONFIGS.plural) -> None:
    """Let every list of a kind be answered so."""
    kube.answer_next(
        20, lambda _: status_reply(status, reason, "refused"), when=lambda one: one.path.endswith(f"/{plural}")
    )


def define(kube: FakeKube, *, served: bool) -> None:
    verdict = "True" if served else "False"
    conditions = [{"type": "Established", "status": verdict, "reason": "x", "message": "terminating"}]
    for kind in (*KINDS, APPLICATIONS):
        kube.put(DEFINITIONS, make_definition(kind) | {"status": {"conditions": conditions}})


async def test_a_kind_that_is_not_defined_has_no_objects(kube: FakeKube) -> None:
    refuse(kube, 404, "NotFound")
    assert await list_served(kube, HOST_CONFIGS, ROW, UNKNOWN) is None


async def test_a_kind_that_is_defined_and_not_served_is_unknown(kube: FakeKube) -> None:
    define(kube, served=False)
    refuse(kube, 404, "NotFound")
    found = await list_served(kube, HOST_CONFIGS, ROW, UNKNOWN)
    assert isinstance(found, Part)
    assert found.problem
    assert found.facts == UNKNOWN


@pytest.mark.parametrize(
    ("status", "reason", "error"),
    [(404, "NotFound", NotFound), (403, "Forbidden", Forbidden), (500, "InternalError", KubeError)],
)
async def test_what_the_api_server_refuses_of_a_kind_that_it_has_is_an_error(
    kube: FakeKube, status: int, reason: str, error: type[KubeError]
) -> None:
    define(kube, served=True)
    refuse(kube, status, reason)
    with pytest.raises(error):
        await list_served(kube, HOST_CONFIGS, ROW, UNKNOWN)


async def test_the_row_of_controllers_is_unknown_too(kube: FakeKube) -> None:
    define(kube, served=False)
    refuse(kube, 404, "NotFound", WASM_CONTROLLERS.plural)
    found = await read_controllers(kube, "trellis-system")
    assert found.problem
    assert found.facts["count"] is None
