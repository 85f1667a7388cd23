"""Every row of `trellis status`, and `trellis explain`, reports a Lease that is not as it should be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from unittest.mock import AsyncMock

import pytest

from support.suite.naming import lacking
from trellis import names
from trellis.kube.resources import LEASES, NAMESPACES
from trellis.read_model.explain.page import Rank
from trellis.read_model.reading.cluster import Reading
from trellis.telemetry import Metrics, setup
from trellis_cli.apps.row import read_applications
from trellis_cli.controllers.table import read_controllers
from trellis_cli.status import command as status
from trellis_cli.status.command import _hosts, _reflected_services, _service
from trellis_cli.status.row import Part
from trellis_dev.fakes.fake import FakeKube

NS = "trellis-system"
FUTURE = timedelta(days=400)
HOLDER = "pod-1"
ROWS: dict[str, Callable[[FakeKube], Awaitable[Part]]] = {
    "provisioner": lambda kube: _service(kube, "provisioner", NS, datetime.now(UTC)),
    "host-manager": lambda kube: _hosts(kube, NS),
    "service-reflector": lambda kube: _reflected_services(kube, NS),
    "application-manager": lambda kube: read_applications(kube, NS, []),
    "controller-host": lambda kube: read_controllers(kube, NS),
}


def led(service: str, ahead: timedelta, **annotations: str) -> FakeKube:
    kube = FakeKube(telemetry=setup("test", metrics=Metrics()))
    kube.put(NAMESPACES, {"metadata": {"name": NS}})
    renewed = (datetime.now(UTC) + ahead).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": HOLDER, "renewTime": renewed, "leaseDurationSeconds": 15}
    metadata = {"name": names.LEASE_PREFIX + service, "namespace": NS, "annotations": annotations}
    kube.put(LEASES, {"metadata": metadata, "spec": spec})
    return kube


@pytest.mark.parametrize("service", ROWS)
async def test_a_lease_of_the_future_is_a_problem_of_the_row_of_its_service(
    monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    monkeypatch.setattr(status, "warned", AsyncMock(return_value=[]))  # the fake selects no Events
    part = await ROWS[service](led(service, FUTURE))
    assert lacking(part.problem, "Lease") == []
    assert (await ROWS[service](led(service, timedelta(seconds=5)))).problem == "", "clocks differ a little"
    assert lacking((await ROWS[service](led("other", FUTURE))).problem, "Lease") == ["Lease"]


async def test_the_page_of_an_object_reports_it_too() -> None:
    line = (await Reading(led("host-manager", FUTURE), NS).leader("host-manager", "it rests")).line()
    assert (line.ok, line.rank) == (False, Rank.SERVICE)
    assert lacking(line.text, "Lease") == []


@pytest.mark.parametrize("service", ROWS)
async def test_other_software_that_holds_a_lease_leads_nothing(monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    monkeypatch.setattr(status, "warned", AsyncMock(return_value=[]))
    kube = led(service, timedelta(0), **{names.ANNOTATION_HOLDER: "pod-2"})
    part = await ROWS[service](kube)
    assert lacking(part.problem, "Lease") == []
    assert f"led by {HOLDER}" not in part.text
    line = (await Reading(kube, NS).leader(service, "it rests")).line()
    assert (line.ok, line.rank) == (False, Rank.SERVICE)
    assert lacking(line.text, "Lease") == []
    assert HOLDER not in line.text
