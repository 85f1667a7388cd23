"""`trellis uninstall`, as the hook of `helm uninstall` runs it, on a real API server beside real services.

A stand-in for the kubelet ends the process of a Deployment that is scaled to 0. The command has the hook's account.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from support.chart.installed import Installation, Running, Where, bus_keys, processes
from support.chart.rendered import CHART, Manifest, bus_server, helm, hooks, only
from support.cluster.grants import RBAC_KINDS, SYSTEM, Granted, given, granted, refused, used
from support.lattices.host_world import PATIENCE
from support.lattices.reflected import ReflectedWorld
from support.nodes.fleet import eventually
from support.nodes.shims import Shim
from support.suite import killed_command
from support.suite.typed import Done, bare_environment, typed_meanwhile
from support.wadm.applications_kind import ApplicationsKind
from support.wadm.manifests import manifest
from trellis import names
from trellis.kube.resources import (
    API_SERVICES,
    APPLICATIONS,
    DEFINITIONS,
    ENDPOINT_SLICES,
    HOST_CONFIGS,
    LEASES,
    NAMESPACES,
    SERVICES,
    SHIMS,
    Resource,
)
from trellis.lattice.domain.preserved import PreservedAllocation
from trellis_cli.uninstall.model import GUARDS
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.timeout(420)]

RELEASE = "leaving"
VALUES: dict[str, Any] = {
    "crds": {"install": False},
    "services": only("provisioner", "hostManager", "serviceReflector", "applicationManager"),
}


class Uninstallation:
    """An installation that is to go, and one object of each kind that its services guard."""

    def __init__(self, world: ReflectedWorld, shim: Shim, account: Granted) -> None:
        self.world, self.shim, self.account = world, shim, account
        self.api = world.hosts.api
        self.rights = [hook for hook in hooks("pre-delete") if hook["kind"] in RBAC_KINDS]
        self.guarded: tuple[tuple[Resource, str | None, str], ...] = (
            (SHIMS, None, shim.name),
            (HOST_CONFIGS, world.namespace, "group"),
            (APPLICATIONS, world.namespace, "leaving"),
            (SERVICES, world.namespace, "leaving"),
        )

    def finalizers(self) -> dict[str, list[str]]:
        """Return the finalizers of each object that is there."""
        found = {}
        for res, namespace, name in self.guarded:
            status, item = self.api.call("GET", res.path(namespace, name))
            if status == http.HTTPStatus.OK:
                found[res.kind] = item["metadata"].get("finalizers") or []
        return found

    def apply(self) -> None:
        """Make what no service makes by itself."""
        self.shim.apply()
        self.world.group("group", "leaving-lattice")
        self.api.call(
            "POST",
            APPLICATIONS.path(self.world.namespace),
            {
                "apiVersion": APPLICATIONS.api_version,
                "kind": APPLICATIONS.kind,
                # As application_manager left it while wadm answered; here nobody does.
                "metadata": {"name": "leaving", "finalizers": [names.FINALIZER_APPLICATIONS]},
                "spec": manifest("leaving")["spec"],
            },
        )

    def service(self, *, ours: bool = True) -> None:
        """Make a Service as service_reflector does, or as wasmcloud-operator would."""
        annotations = {names.ANNOTATION_APPLICATION: "leaving", names.ANNOTATION_LATTICE: "leaving-lattice/0"}
        metadata = {"name": "leaving", "annotations": annotations if ours else {}}
        body = {"metadata": metadata, "spec": {"ports": [{"port": 8080}]}}
        assert self.api.call("POST", SERVICES.path(self.world.namespace), body)[0] == http.HTTPStatus.CREATED

    def guard(self) -> None:
        """Put the finalizers on, as the services would."""
        held = {guard.res: guard.finalizer for guard in GUARDS}
        for res, namespace, name in self.guarded:
            self.api.call("PATCH", res.path(namespace, name), {"metadata": {"finalizers": [held[res]]}})

    def delete(self) -> None:
        for res, namespace, name in self.guarded:
            assert self.api.call("DELETE", res.path(namespace, name))[0] == http.HTTPStatus.OK, name

    async def run(self, *arguments: str) -> Done:
        """Run `trellis` as the hook's account."""
        return await typed_meanwhile(self.environment(), *arguments)

    async def run_and_be_killed(self, *arguments: str) -> Done:
        """Run ``support.suite.killed_command`` as the hook's account."""
        command = [sys.executable, killed_command.__file__, *arguments]
        return await asyncio.to_thread(
            subprocess.run,
            command,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        return bare_environment(TRELLIS_KUBECONFIG=str(self.account.kubeconfig), TRELLIS_NAMESPACE=SYSTEM)

    async def remove_finalizers(self, *options: str) -> Manifest:
        """Run it to its end, which has to be a good one."""
        done = await self.run("uninstall", "--remove-finalizers", "--yes", "-o", "json", *options)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))


@contextlib.contextmanager
def installed(api: Api, kubeconfig: Path, **values: Any) -> Iterator[Installation]:
    """Have the chart for the time of a block."""
    api.call("POST", NAMESPACES.path(), {"metadata": {"name": SYSTEM}})
    try:
        place = ("--namespace", SYSTEM, "--no-hooks")  # no kubelet runs the Job of one
        helm("install", RELEASE, str(CHART), *place, values=VALUES | values, kubeconfig=kubeconfig)
        yield Installation(api)
    finally:
        helm("uninstall", RELEASE, "--namespace", SYSTEM, "--ignore-not-found", "--no-hooks", kubeconfig=kubeconfig)


@pytest.fixture
def uninstallation(
    cluster: ClusterInfo, cluster_api: Api, world: ReflectedWorld, shim: Shim, tmp_path: Path
) -> Iterator[Uninstallation]:
    applications = ApplicationsKind(cluster_api)
    made = applications.ensure()
    with granted(cluster, cluster_api, "trellis-uninstall", tmp_path) as account:
        found = Uninstallation(world, shim, account)
        account.apply(found.rights)
        yield found
        for res, namespace, name in found.guarded:
            path = res.path(namespace, name)
            cluster_api.call("DELETE", path)
            cluster_api.call("PATCH", path, {"metadata": {"finalizers": None}})
    if made:
        applications.clear()


@contextlib.asynccontextmanager
async def kubelet(installation: Installation, started: list[Running]) -> AsyncIterator[None]:
    """End the process of a Deployment that is to have no pods, for the time of a block."""

    async def follow() -> None:
        while True:
            found = installation.deployments()
            deleted = {item["metadata"]["name"] for item in found if item["spec"]["replicas"] == 0}
            await asyncio.gather(*(item.end() for item in started if item.deployment in deleted))
            await asyncio.sleep(0.2)

    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.thorough
async def test_killed_at_every_write_it_still_removes_all_finalizers(
    cluster: ClusterInfo, uninstallation: Uninstallation, tmp_path: Path
) -> None:
    values: dict[str, Any] = {
        "installers": {"namespace": uninstallation.shim.fleet.installers},
        "nats": {"replicas": 1},
    }
    with installed(uninstallation.api, Path(cluster.kubeconfig), **values) as installation:
        uninstallation.apply()
        keys = bus_keys(Where(cluster, uninstallation.api, tmp_path, ""), hooks("pre-install", **VALUES | values))
        async with keys as files, contextlib.AsyncExitStack() as stack:
            server = stack.enter_context(bus_server(files, tmp_path))
            where = Where(cluster, uninstallation.api, tmp_path, server.url.split("//")[1])
            async with (
                uninstallation.world.wadm("leaving-lattice") as wadm,
                processes(where, installation.deployments()) as started,
            ):
                await wadm.deploy(manifest("leaving"))
                wanted = {
                    "Shim": [names.FINALIZER],
                    "WasmCloudHostConfig": [names.FINALIZER_HOSTS],
                    "Application": [names.FINALIZER_APPLICATIONS],
                    "Service": [],
                }
                await eventually(lambda: uninstallation.finalizers() == wanted, "all are guarded", seconds=PATIENCE)

                killed = 0
                async with kubelet(installation, started):
                    command = (killed_command.AFTER, "uninstall", "--remove-finalizers", "--yes", "--timeout=60s")
                    while (done := await uninstallation.run_and_be_killed(*command)).returncode == -signal.SIGKILL:
                        killed += 1
                assert done.returncode == 0, done.stderr
                assert killed >= 8, "four services were stopped, three objects and a slice let go, one write at a time"
                assert all(item.process.returncode is not None for item in started), "they were stopped before"
                assert uninstallation.finalizers() == {kind: [] for kind in wanted}

                again = await uninstallation.remove_finalizers()
                assert again["stopped"] == []
                assert [kind["removed"] for kind in again["kinds"]] == [[], [], [], [], []]
                assert all(kind["managed"] >= 1 and kind["remains"] for kind in again["kinds"])
        uninstallation.delete()
        await eventually(lambda: uninstallation.finalizers() == {}, "all are gone", seconds=PATIENCE)
    records = uninstallation.shim.fleet.writes()
    assert refused(records, uninstallation.account.user) == []
    needed = {
        (verb, what, where if where in {SYSTEM, names.CLAIM_NAMESPACE} else "")
        for verb, what, where in used(records, uninstallation.account.user)
    }
    rare = {
        ("get", f"{DEFINITIONS.plural}.{DEFINITIONS.group}", ""),
        ("get", f"{API_SERVICES.plural}.{API_SERVICES.group}", ""),
        ("patch", SERVICES.plural, ""),  # of a former version
        # Required by the admission plugin OwnerReferencesPermissionEnforcement, which is off here.
        ("delete", f"{ENDPOINT_SLICES.plural}.{ENDPOINT_SLICES.group}", ""),
    }
    assert needed - rare == given(uninstallation.rights) - rare, (
        "each right was needed, or is for a kind that answers 404"
    )


async def test_finalizers_of_objects_without_a_controller_are_removed_too(uninstallation: Uninstallation) -> None:
    uninstallation.apply()
    uninstallation.service()
    uninstallation.guard()
    uninstallation.delete()
    held = uninstallation.finalizers()
    assert all(held.values()), "nothing goes by itself"
    assert len(held) == len(GUARDS)
    done = await uninstallation.remove_finalizers("--timeout=60s")
    guarded = [kind for kind in done["kinds"] if kind["kind"] != ENDPOINT_SLICES.kind]
    assert all(kind["removed"] and kind["unfinished"] for kind in guarded)
    await eventually(lambda: uninstallation.finalizers() == {}, "all are gone", seconds=PATIENCE)


async def test_a_slice_whose_service_was_created_again_goes_with_that_one(uninstallation: Uninstallation) -> None:
    uninstallation.service()
    namespace = uninstallation.world.namespace
    kept = PreservedAllocation("leaving", "leaving-lattice/0", "7c1f5b52-0f4e-4a52-9a59-2f8a3c6f5e11")
    metadata = {
        "name": "leaving-keeper",
        "labels": {names.LABEL_SERVICE_NAME: "leaving", names.LABEL_SLICE_MANAGED_BY: names.SLICE_MANAGED_BY},
        "annotations": {names.ANNOTATION_PRESERVED: json.dumps(asdict(kept))},
    }
    body = {"metadata": metadata, "addressType": "IPv4", "endpoints": [], "ports": []}
    assert uninstallation.api.call("POST", ENDPOINT_SLICES.path(namespace), body)[0] == http.HTTPStatus.CREATED
    service = uninstallation.api.call("GET", SERVICES.path(namespace, "leaving"))[1]
    await uninstallation.remove_finalizers("--timeout=60s")
    path = ENDPOINT_SLICES.path(namespace, "leaving-keeper")
    found = uninstallation.api.call("GET", path)[1]["metadata"]
    assert [owner_reference["uid"] for owner_reference in found["ownerReferences"]] == [service["metadata"]["uid"]]
    uninstallation.api.call("DELETE", SERVICES.path(namespace, "leaving"))
    await eventually(
        lambda: uninstallation.api.call("GET", path)[0] == http.HTTPStatus.NOT_FOUND, "it is gone", seconds=PATIENCE
    )


@pytest.mark.thorough
async def test_a_dry_run_writes_nothing_and_a_service_of_another_owner_is_left_alone(
    uninstallation: Uninstallation,
) -> None:
    uninstallation.apply()
    uninstallation.service(ours=False)
    uninstallation.guard()
    before = uninstallation.finalizers()
    done = await uninstallation.run("uninstall", "--remove-finalizers", "--dry-run", "-o", "json")
    assert (done.returncode, uninstallation.finalizers()) == (0, before), done.stderr
    found = json.loads(done.stdout)
    assert found["stopped"] == []
    assert all(kind["remains"] for kind in found["kinds"] if kind["removed"]), found
    await uninstallation.remove_finalizers("--timeout=60s")
    assert uninstallation.finalizers() == {kind: [] for kind in before} | {
        "Service": [names.WASMCLOUD_OPERATOR_SERVICE]
    }


async def test_a_service_that_still_leads_is_named_and_no_finalizer_is_removed(uninstallation: Uninstallation) -> None:
    uninstallation.apply()
    uninstallation.guard()
    lease = LEASES.path(SYSTEM, "trellis-provisioner")
    uninstallation.api.call("DELETE", lease)
    uninstallation.api.call("POST", LEASES.path(SYSTEM), {"metadata": {"name": "trellis-provisioner"}, "spec": {}})
    try:
        spec = {"holderIdentity": "laptop-1", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
        assert uninstallation.api.call("PATCH", lease, {"spec": spec})[0] == http.HTTPStatus.OK
        done = await uninstallation.run("uninstall", "--remove-finalizers", "--yes", "--timeout=1s")
        assert done.returncode == 1
        for named in ("laptop-1", "provisioner"):
            assert named in done.stderr
        assert uninstallation.finalizers()["Shim"] == [names.FINALIZER]
    finally:
        uninstallation.api.call("DELETE", lease)
