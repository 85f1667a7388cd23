"""`trellis status` for an account that may not read everything: unknown rows, and no problem of the installation."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from unittest.mock import AsyncMock

import pytest

from trellis import names
from trellis.kube.lease import new_lease, with_holder
from trellis.kube.resources import (
    APPLICATIONS,
    CONFIGMAPS,
    DEFINITIONS,
    ENDPOINT_SLICES,
    HOST_CONFIGS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SECRET_GRANTS,
    SERVICES,
    SHIMS,
    WASM_CONTROLLERS,
    Resource,
)
from trellis.kube.transport import HttpRequest, Reply
from trellis.telemetry import Metrics, setup
from trellis_cli.common.output import Format
from trellis_cli.common.settings import ClientSettings
from trellis_cli.controllers.table import read_controllers
from trellis_cli.status import command as status
from trellis_cli.status.command import Status
from trellis_cli.status.row import Part
from trellis_dev.fakes.fake import FakeKube, status_reply

NS = "trellis-system"
SETTINGS = ClientSettings(namespace=NS)
Row = Callable[[FakeKube], Awaitable[Part]]
ROWS: dict[str, Row] = {
    "provisioner": lambda kube: status._service(kube, "provisioner", NS, datetime.now(UTC)),
    "installation": lambda kube: status._installation(kube, SETTINGS, datetime.now(UTC)),
    "rollout": lambda kube: status._rollout(kube, SETTINGS),
    "circuit-breakers": lambda kube: status._breakers(kube, NS),
    "hosts": lambda kube: status._hosts(kube, NS),
    "applications": lambda kube: status._applications(kube, NS),
    "reflected-services": lambda kube: status._reflected_services(kube, NS),
    "secrets": lambda kube: status._secrets(kube, NS),
    "controllers": lambda kube: read_controllers(kube, NS),
}
READ = [
    ("provisioner", LEASES),
    ("installation", LEASES),
    ("rollout", NODES),
    ("rollout", JOBS),
    ("rollout", SHIMS),
    ("rollout", CONFIGMAPS),
    ("circuit-breakers", CONFIGMAPS),
    ("hosts", HOST_CONFIGS),
    ("applications", APPLICATIONS),
    ("applications", HOST_CONFIGS),
    ("reflected-services", SERVICES),
    ("reflected-services", ENDPOINT_SLICES),
    ("reflected-services", HOST_CONFIGS),
    ("secrets", SECRET_GRANTS),
    ("secrets", PODS),
    ("controllers", WASM_CONTROLLERS),
]


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch) -> FakeKube:
    """A cluster in which nothing is wrong; the fake selects no Events."""
    monkeypatch.setattr(status, "warned", AsyncMock(return_value=[]))
    monkeypatch.setattr(status, "pending_cause", AsyncMock(return_value={}))
    kube = FakeKube(telemetry=setup("test", metrics=Metrics()))
    kube.put(NAMESPACES, {"metadata": {"name": NS}})
    lease = new_lease(f"{names.LEASE_PREFIX}provisioner", NS)
    kube.put(LEASES, with_holder(lease, identity="pod-1", duration=15, now=datetime.now(UTC)))
    return kube


def denied(verb: str, res: Resource) -> Reply:
    reason = f'User "jane" cannot {verb} resource "{res.plural}" in API group "{res.group}" at the cluster scope'
    return status_reply(403, "Forbidden", f"{res.plural} is forbidden: {reason}")


def deny(kube: FakeKube, res: Resource) -> None:
    def of_it(request: HttpRequest) -> bool:
        return f"/{res.plural}" in request.path

    kube.answer_next(99, lambda _: denied("list", res), when=of_it)


@pytest.mark.parametrize(("name", "res"), READ, ids=[f"{name}, {res.plural}" for name, res in READ])
async def test_a_forbidden_list_is_unknown_and_no_problem(kube: FakeKube, name: str, res: Resource) -> None:
    part = await status._guarded(name, ROWS[name](kube))
    assert (part.ok, part.unread) == (True, ""), part.problem
    deny(kube, res)
    part = await status._guarded(name, ROWS[name](kube))
    assert (part.ok, part.problem) == (None, "")
    assert res.plural in part.unread


async def test_a_viewer_without_permission_for_crds_does_not_know_if_a_kind_is_defined(kube: FakeKube) -> None:
    def answer(request: HttpRequest) -> Reply:
        missing = f"/{HOST_CONFIGS.plural}" in request.path and DEFINITIONS.plural not in request.path
        return status_reply(404, "NotFound", "not found") if missing else denied("get", DEFINITIONS)

    def of_it(request: HttpRequest) -> bool:
        return HOST_CONFIGS.plural in request.path or DEFINITIONS.plural in request.path

    kube.answer_next(99, answer, when=of_it)
    for name in ("hosts", "applications"):
        part = await status._guarded(name, ROWS[name](kube))
        assert (part.ok, part.problem) == (None, "")
        assert HOST_CONFIGS.plural in part.unread


async def test_another_refusal_is_a_problem(kube: FakeKube) -> None:
    kube.answer_next(99, lambda _: status_reply(403, "Forbidden", "by a proxy"))
    for name in ("reflected-services", "controllers"):
        assert (await status._guarded(name, ROWS[name](kube))).ok is False


FINE, UNREAD, BAD = Part("part", "text"), Part("part", "unknown", unread="list pods"), Part("part", "text", "broken")


@pytest.mark.parametrize(
    ("parts", "ok", "ended"),
    [
        pytest.param((FINE, FINE), True, 0, id="all is well"),
        pytest.param((FINE, UNREAD), None, 0, id="a part is unknown"),
        pytest.param((UNREAD, BAD), False, 1, id="a part has a problem"),
    ],
)
def test_only_a_problem_changes_the_exit_status(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    parts: tuple[Part, Part],
    ok: bool | None,
    ended: int,
) -> None:
    found = replace(Status(FINE, (FINE,), *[FINE] * 9), hosts=parts[0], secrets=parts[1])
    monkeypatch.setattr(status, "read_cluster", AsyncMock(return_value=found))
    code: object = 0
    try:
        status.status(output=Format.JSON)
    except SystemExit as exited:
        code = exited.code
    document = json.loads(capsys.readouterr().out)
    assert (code, document["ok"]) == (ended, ok)
    assert document["secrets"]["unread"] == (parts[1].unread or None)
