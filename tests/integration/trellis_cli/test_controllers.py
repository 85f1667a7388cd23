"""`trellis controllers` as people run it, on a real API server with controllers in every state."""

from __future__ import annotations

import asyncio
import http
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.cluster.grants import SYSTEM, granted
from support.guests.controllers_world import CONFIG_MAPS, Host, Tenant, define, own_namespace, tenancy, until
from support.guests.wat_guests import guest
from support.suite.typed import Done, bare_environment, typed
from trellis.kube.resources import DEFINITIONS, WASM_CONTROLLERS
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

Run = Callable[..., Done]
DEFINITION = DEFINITIONS.path(name="wasmcontrollers.trellis.dev")


@pytest.fixture
def run(cluster: ClusterInfo) -> Run:
    """Runs a command as a user does, in a terminal of 200 columns."""

    def run(*arguments: str, kubeconfig: Path | None = None) -> Done:
        environment = bare_environment(KUBECONFIG=str(kubeconfig or cluster.kubeconfig), COLUMNS="200")
        return typed(environment, "controllers", *arguments)

    return run


@pytest.fixture
def tenant(cluster_api: Api) -> Iterator[Tenant]:
    with tenancy(cluster_api) as make:
        yield make()


@pytest.fixture
def host(cluster: ClusterInfo, cluster_api: Api, nats_server: NatsServer, tmp_path: Path) -> Iterator[Host]:
    with own_namespace(cluster_api, Host(cluster, nats_server.url, tmp_path)) as made:
        yield made


def rows_of(done: Done) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in json.loads(done.stdout)["controllers"]}


async def test_each_controller_is_a_row_with_its_state_and_remedy(host: Host, tenant: Tenant, run: Run) -> None:
    tenant.account("any", CONFIG_MAPS)
    for name in ("good", "traps"):
        tenant.module(name, guest(name))
    tenant.module("broken", b"\0asm\1\0\0\0")
    for name, spec in {"good": {}, "traps": {}, "broken": {}, "waits": {"paused": True}}.items():
        module = name if name != "waits" else "good"
        tenant.controller(name, module, serviceAccountName="any", **spec)
    tenant.config_map("x")
    async with host.serving():
        await until(lambda: tenant.condition("good", "Ready")[0] == "True", "one is well")
        await until(lambda: tenant.condition("broken", "Ready") == ("False", "MissingExport"), "one is refused")
        await until(lambda: tenant.condition("waits", "Ready") == ("False", "Paused"), "one is paused")
        await until(lambda: (tenant.status("traps").get("lastFault") or {}).get("kind") == "Trapped", "one traps")
        await until(lambda: tenant.condition("traps", "Ready")[0] == "False", "and is not ready")
    tenant.controller("late", "good", serviceAccountName="any")

    done = await asyncio.to_thread(run, "-n", tenant.name)
    assert (done.returncode, done.stderr) == (1, "")
    heading, *lines = done.stdout.splitlines()
    assert heading.split()[:4] == ["NAMESPACE", "NAME", "STATE", "MEMORY"]
    by_name = {line.split()[1]: line for line in lines if line.startswith(tenant.name)}
    assert list(by_name) == sorted(["broken", "good", "late", "traps", "waits"])
    text = " ".join(done.stdout.split())
    assert "MissingExport: " in text
    assert "`trellis run controller-host`" in text
    assert "Failed" in by_name["broken"]
    assert "Paused" in by_name["waits"]

    rows = rows_of(await asyncio.to_thread(run, "-n", tenant.name, "-o", "json"))
    assert {name: row["ready"] for name, row in rows.items()} == dict.fromkeys(rows, False) | {"good": True}
    assert rows["good"]["problem"] is None
    assert str(rows["waits"]["problem"]).startswith("Paused: ")
    fault = rows["traps"]["last_fault"]
    assert isinstance(fault, dict)
    assert (fault["kind"], bool(fault["message"]), bool(fault["time"])) == ("Trapped", True, True)
    assert rows["late"]["state"] is None

    item = await asyncio.to_thread(run, "-n", tenant.name, "--name", "good", "-o", "json")
    assert item.returncode == 0
    assert json.loads(item.stdout)["ok"] is True
    assert list(rows_of(item)) == ["good"]
    only_paused = await asyncio.to_thread(run, "-n", tenant.name, "--name", "waits")
    assert only_paused.returncode == 0


def test_no_controllers_is_reported_and_no_error(tenant: Tenant, run: Run) -> None:
    done = run("-n", tenant.name)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    for named in (f"namespace {tenant.name}", "WasmController"):
        assert named in done.stdout
    assert json.loads(run("-n", tenant.name, "-o", "json").stdout) == {"ok": True, "controllers": []}


def test_mistakes_are_one_line_that_names_the_remedy(
    cluster: ClusterInfo, cluster_api: Api, tenant: Tenant, run: Run, tmp_path: Path
) -> None:
    missing = run("-n", tenant.name, "--name", "nobody")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.count("\n") == 1
    for named in ('WasmController "nobody"', f"namespace {tenant.name}", f"`trellis controllers -n {tenant.name}`"):
        assert named in missing.stderr
    unplaced = run("--name", "nobody")
    assert (unplaced.returncode, unplaced.stdout) == (2, "")
    assert unplaced.stderr.startswith("Error: --name")
    assert "--namespace" in unplaced.stderr
    assert unplaced.stderr.count("\n") == 1
    with granted(cluster, cluster_api, "reader", tmp_path) as account:
        account.apply([{"kind": "ServiceAccount", "metadata": {"namespace": SYSTEM, "name": "reader"}}])
        refused = run(kubeconfig=account.kubeconfig)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.count("\n") == 1
        assert "wasmcontrollers.trellis.dev" in refused.stderr
        assert " forbidden: " in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_cluster_without_the_crd_gets_the_command_to_install_it(
    cluster: ClusterInfo, cluster_api: Api, run: Run
) -> None:
    define(cluster_api)
    cluster_api.call("DELETE", DEFINITION)
    try:
        wait_until_deleted(cluster_api)
        for arguments in ([], ["-n", "default", "--name", "nobody"]):
            done = run(*arguments)
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr.count("\n") == 1
            for named in ('"wasmcontrollers"', "`trellis crds apply`"):
                assert named in done.stderr
        explained = typed(bare_environment(KUBECONFIG=str(cluster.kubeconfig)), "explain", "wasmctl/nobody")
        assert (explained.returncode, explained.stdout) == (1, "")
        for named in ('"wasmcontrollers"', "https://", "`trellis crds apply wasmcontrollers`"):
            assert named in explained.stderr
    finally:
        wait_until_deleted(cluster_api)
        define(cluster_api)


def wait_until_deleted(api: Api) -> None:
    """Wait until neither the definition is there nor the kind served."""
    for _ in range(300):
        defined = api.call("GET", DEFINITION)[0]
        if defined == http.HTTPStatus.NOT_FOUND and not api.ok(f"{WASM_CONTROLLERS.path(None)}?limit=1"):
            return
        time.sleep(0.1)
    pytest.fail("the definition does not go")


def test_roles_are_printed_for_kubectl_and_mistakes_are_one_line(run: Run) -> None:
    printed = run("roles", "-n", "team-a", "-a", "mirror", "--watch", "configmaps", "-o", "json")
    assert (printed.returncode, printed.stderr) == (0, "")
    found = json.loads(printed.stdout)
    assert [(item["kind"], item["metadata"]["namespace"]) for item in found["items"]] == [
        ("Role", "team-a"),
        ("RoleBinding", "team-a"),
    ] * 2
    for arguments, named in MISTAKES.items():
        done = run("roles", *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"Error: {named}: ")


MISTAKES: dict[tuple[str, ...], str] = {
    ("-n", "a"): "--service-account",
    ("-n", "A_", "-a", "b"): "--namespace",
    ("-n", "a", "-a", "b,c"): "--service-account",
    ("-n", "a", "-a", "b", "--watch", "v1/Job"): "--watch",
    ("-n", "a", "-a", "b", "--watch", "secrets"): "--watch",
}
