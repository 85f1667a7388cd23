"""Writes of Applications that admission refuses: reported on the Application or its group, and recovered from."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from support.cluster.validating_policies import refusing, rule
from support.lattices.host_world import PATIENCE
from support.lattices.real_lattice import Wadm, application, wasm_component
from support.nodes.fleet import Manifest, eventually
from support.suite.tiers import first_of
from support.wadm.application_world import ApplicationWorld, spec
from trellis import names
from trellis.kube.resources import APPLICATIONS
from trellis.runtime.run import LedService

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

MESSAGE = "no owner is named"
SECONDS = 30.0
"""After which everything has recovered."""


def noted(service: LedService, expected_text: str) -> bool:
    """Return whether readiness names these words."""
    return expected_text in str((service.health.readiness().reasons, service.health.notes()))


@contextlib.asynccontextmanager
async def refusing_applications(
    apps: ApplicationWorld, operation: str, sub: str = "", reason: str = "Invalid"
) -> AsyncIterator[None]:
    """Have a policy refuse writes of Applications in the test's namespace, in which there is ``probe``."""
    api, plural = apps.hosts.api, f"{APPLICATIONS.plural}/{sub}" if sub else APPLICATIONS.plural
    probe: Manifest = {"apiVersion": APPLICATIONS.api_version, "kind": APPLICATIONS.kind, "metadata": {"name": "new"}}
    probe["spec"] = spec()
    method, path = "POST", APPLICATIONS.path(apps.namespace)
    if operation == "UPDATE":
        method, path = "PATCH", APPLICATIONS.path(apps.namespace, "probe", sub or None)
        probe = {"status": {"phase": "Waiting"}} if sub else {"metadata": {"labels": {"probe": "x"}}}
    forbidden = lambda: MESSAGE in str(api.call(method, f"{path}?dryRun=All", probe)[1])  # noqa: E731
    matched = rule(APPLICATIONS.group, plural, operation) | {"apiVersions": ["*"]}
    only = f"request.namespace == '{apps.namespace}'"
    async with refusing(apps.hosts.fleet, matched, MESSAGE, only, forbidden, reason):
        yield


@pytest.mark.parametrize("reason", first_of(["Invalid", "Forbidden"]))
async def test_an_application_of_wadms_that_is_refused_is_reported_on_its_group_and_shown_once_it_is_permitted(
    apps: ApplicationWorld, wadm: Wadm, reason: str
) -> None:
    apps.group()
    async with apps.manager() as service:
        async with refusing_applications(apps, "CREATE", reason=reason):
            await wadm.put(application("web", wasm_component("echo", "file:///none-1.wasm"), version="v1"))
            await eventually(lambda: MESSAGE in apps.warnings().get("WriteRefused", ""), "an Event", seconds=PATIENCE)
            await eventually(lambda: noted(service, MESSAGE), "in readiness")
        await eventually(lambda: apps.find("web"), "it is shown", seconds=SECONDS)
        await eventually(lambda: not noted(service, MESSAGE), "readiness names it no more", seconds=SECONDS)


@pytest.mark.parametrize("reason", first_of(["Invalid", "Forbidden"]))
async def test_an_application_that_cannot_be_changed_reports_why_until_it_can(
    apps: ApplicationWorld, reason: str
) -> None:
    apps.group()
    apps.apply("probe", spec())
    async with apps.manager() as service:
        async with refusing_applications(apps, "UPDATE", reason=reason):
            apps.apply("web", spec())
            found = await apps.condition("web", "Synced", "False", "WriteRefused")
            assert any(MESSAGE in condition["message"] for condition in found["status"]["conditions"])
            await eventually(lambda: MESSAGE in apps.warnings().get("WriteRefused", ""), "an Event")
            await eventually(lambda: noted(service, MESSAGE), "in readiness")
        await eventually(
            lambda: names.FINALIZER_APPLICATIONS in (apps.find("web") or {})["metadata"].get("finalizers", ()),
            "it has the finalizer",
            seconds=SECONDS,
        )
        await apps.synced("web")
        await eventually(lambda: not noted(service, MESSAGE), "readiness names it no more", seconds=SECONDS)


@pytest.mark.thorough
async def test_a_status_that_a_policy_refuses_is_in_readiness(apps: ApplicationWorld) -> None:
    apps.group()
    apps.apply("probe", spec())
    async with apps.manager() as service:
        async with refusing_applications(apps, "UPDATE", "status"):
            apps.apply("web", spec())
            await eventually(lambda: noted(service, MESSAGE), "in readiness", seconds=PATIENCE)
        await apps.synced("web")
        await eventually(lambda: not noted(service, MESSAGE), "readiness names it no more", seconds=SECONDS)
