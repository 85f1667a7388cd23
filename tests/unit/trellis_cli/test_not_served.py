"""No command acts on a kind that it could not list, nor shows it as one without objects."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support.cluster.not_served import define, refuse
from trellis.crds.kinds import APPLICATIONS as KIND
from trellis.kube.errors import NotFound
from trellis.kube.resources import (
    API_SERVICES,
    APPLICATIONS,
    HOST_CONFIGS,
    NODES,
    SECRET_GRANTS,
    SHIMS,
    WASM_CONTROLLERS,
    Resource,
)
from trellis.provisioning.other_controllers import Peer
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained import group_page, shim_page
from trellis.read_model.reading.served import NotServedError
from trellis.telemetry import Metrics, setup
from trellis_cli.apps.ask import read_groups
from trellis_cli.common.errors import CommandError, describe_error
from trellis_cli.common.output import Format
from trellis_cli.common.settings import ClientSettings
from trellis_cli.controllers import table as controllers
from trellis_cli.migrate import run as migrate_run
from trellis_cli.migrate.run import Found, How, list_all
from trellis_cli.migrate.wasmcloud import _applications, _read
from trellis_cli.rollout.read import Reader
from trellis_cli.secrets import check as secrets_check
from trellis_dev.fakes.fake import FakeKube

Ask = Callable[[FakeKube], Coroutine[Any, Any, Any]]
SETTINGS = ClientSettings()


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(telemetry=setup("test", metrics=Metrics()))


READERS: dict[str, tuple[Resource, Ask]] = {
    "migrate, Shims": (SHIMS, lambda kube: list_all(kube, SHIMS)),
    "migrate, host groups": (HOST_CONFIGS, _read),
    "migrate, SecretGrants": (SECRET_GRANTS, _read),
    "migrate, Applications": (APPLICATIONS, _applications),
    "apps": (HOST_CONFIGS, read_groups),
    "secrets check": (SECRET_GRANTS, secrets_check._grants),
    "rollout": (SHIMS, lambda kube: Reader(kube, SETTINGS, "spin").read()),
    "explain shim": (SHIMS, lambda kube: shim_page(Reading(kube, "ns"), "ns", "spin")),
    "explain group": (HOST_CONFIGS, lambda kube: group_page(Reading(kube, "ns"), "g", "ns")),
}


@pytest.mark.parametrize("what", READERS)
@pytest.mark.parametrize("served", [False, True], ids=["crd is not established", "a proxy answers 404"])
async def test_a_kind_that_is_defined_and_cannot_be_listed_is_an_error_that_names_it(
    kube: FakeKube, what: str, *, served: bool
) -> None:
    res, ask = READERS[what]
    define(kube, served=served)
    refuse(kube, res)
    with pytest.raises((NotServedError, NotFound)) as raised:
        await ask(kube)
    message = describe_error(raised.value)
    assert res.kind in message or res.definition in message
    assert "`kubectl get " in message


@pytest.mark.parametrize("what", [what for what in READERS if not what.startswith(("rollout", "explain"))])
async def test_a_kind_that_is_not_defined_has_no_objects(kube: FakeKube, what: str) -> None:
    res, ask = READERS[what]
    refuse(kube, res)
    await ask(kube)


async def test_unlistable_controllers_are_not_reported_as_undefined(kube: FakeKube) -> None:
    define(kube, served=False)
    refuse(kube, WASM_CONTROLLERS)
    with pytest.raises(NotServedError):
        await controllers._read(kube, None, None)


async def test_migrate_does_without_nodes_on_no_account(kube: FakeKube) -> None:
    refuse(kube, NODES)
    with pytest.raises(NotFound):
        await list_all(kube, NODES)


async def test_applications_behind_the_api_of_an_operator_that_ended_are_left_to_wadm(kube: FakeKube) -> None:
    service = {"namespace": "wasmcloud", "name": "wasmcloud-operator"}
    kube.put(API_SERVICES, {"metadata": {"name": f"{KIND.version}.{KIND.group}"}, "spec": {"service": service}})
    refuse(kube, APPLICATIONS, 503, "ServiceUnavailable")
    assert await _applications(kube) == []


async def test_a_kind_that_is_not_served_any_more_stops_a_migration_before_it_writes(
    kube: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate_run, "connected", connection_to(kube))
    define(kube, served=False)
    refuse(kube, SHIMS)

    async def find(kube: Any) -> Found:
        await list_all(kube, SHIMS)
        return Found([], [], [])

    how = How(dry_run=False, yes=True, force=True, output=Format.JSON)
    with pytest.raises(NotServedError):
        await migrate_run.migrate(Peer.RCM, SETTINGS, how, find)
    with pytest.raises(CommandError, match=r"^0 .*\bShim\b"):
        await migrate_run._carry_out(kube, find, set())
    assert kube.writes == []


def connection_to(kube: FakeKube) -> Any:
    """Return what stands for a connection to the cluster."""

    @asynccontextmanager
    async def connected(_: ClientSettings) -> Any:
        yield kube

    return connected
