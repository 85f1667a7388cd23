"""deploy/examples/flux with Flux itself: the host group and the application are as they stand in git.

Nodes are simulated, and a stand-in answers for wadm. The examples are applied as they stand; substituted are the
address of the repository, and in it the address of the lattice's NATS.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.examples.applied_examples import Kubectl
from support.examples.example_overlays import overlay, replaced
from support.examples.example_repository import ExampleRepository, example_repository
from support.examples.example_worlds import HELLO
from support.lattices.host_world import HostWorld
from support.nodes.fleet import eventually
from support.operators.flux import NAMESPACE, flux
from support.operators.operator_processes import Operators
from support.wadm.application_world import ApplicationWorld, application_world
from support.wadm.wadm_stand_in import WadmStandIn
from trellis.kube.resources import NAMESPACES, Resource
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.ports import LOOPBACK

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

HOSTS = "hosts"
APPLICATION = "hello/application.yaml"
OF_HOSTS, OF_APPLICATION = "hello-hosts", "hello"
"""The two Kustomizations of the example."""
KUSTOMIZATIONS = Resource("kustomize.toolkit.fluxcd.io", "v1", "kustomizations", "Kustomization", namespaced=True)
REPOSITORIES = Resource("source.toolkit.fluxcd.io", "v1", "gitrepositories", "GitRepository", namespaced=True)
SECONDS = 120.0
"""Flux looks at what a Kustomization depends on every 30 s."""
DELETION_SECONDS = 110


class Flux:
    """Requests to Flux and the status of its objects."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def reconcile(self, res: Resource, name: str) -> None:
        """Ask as ``flux reconcile`` does, so that an interval need not pass."""
        annotations = {"reconcile.fluxcd.io/requestedAt": dt.datetime.now(dt.UTC).isoformat()}
        self._api.call("PATCH", res.path(NAMESPACE, name), {"metadata": {"annotations": annotations}})

    def fetch(self) -> None:
        """Have it see a commit."""
        self.reconcile(REPOSITORIES, "trellis")

    def reported(self, name: str) -> tuple[str, str, str]:
        """Return a Kustomization's verdict, its reason, and the commit that it has applied."""
        status = self._api.call("GET", KUSTOMIZATIONS.path(NAMESPACE, name))[1].get("status") or {}
        ready: dict[str, str] = next(
            (condition for condition in status.get("conditions") or () if condition["type"] == "Ready"), {}
        )
        commit = str(status.get("lastAppliedRevision", "")).rpartition(":")[2]
        return ready.get("status", ""), ready.get("reason", ""), commit

    async def is_ready(self, name: str, commit: str = "") -> None:
        """Wait until a Kustomization is ready, at a commit."""

        def there() -> bool:
            verdict, _, applied = self.reported(name)
            return verdict == "True" and commit in {"", applied}

        try:
            await eventually(there, f"{name} is ready", seconds=SECONDS)
        except AssertionError:
            pytest.fail(f"{name} is not ready: {self._api.call('GET', KUSTOMIZATIONS.path(NAMESPACE, name))[1]}")


@pytest.fixture
def apps(hello: HostWorld, nats_server: NatsServer) -> Iterator[ApplicationWorld]:
    with application_world(hello, nats_server.port, HELLO) as made:
        yield made


@pytest.fixture
def running_flux(operators: Operators, cluster_api: Api) -> Iterator[Flux]:
    with flux(operators):
        yield Flux(cluster_api)


@pytest.fixture
def repository(nats_server: NatsServer, tmp_path: Path) -> Iterator[ExampleRepository]:
    with example_repository(tmp_path / "git", nats_server.port) as served:
        yield served


async def test_flux_applies_the_repository_and_reports_its_health(
    running_flux: Flux,
    repository: ExampleRepository,
    apps: ApplicationWorld,
    kubectl: Kubectl,
    tmp_path: Path,
) -> None:
    hosts = apps.hosts
    example = overlay(tmp_path / "over", "flux", replaced("GitRepository", _spec_url=repository.url))
    async with WadmStandIn(f"nats://{LOOPBACK}:{apps.port}", HELLO) as wadm, hosts.service(), apps.manager():
        kubectl("apply", "-k", str(example))
        await running_flux.is_ready(OF_HOSTS)
        assert hosts.status(HOSTS)["readyReplicas"] == 1

        await apps.synced("hello")
        await eventually(
            lambda: running_flux.reported(OF_APPLICATION)[:2] == ("Unknown", "Progressing"), "it is waited for"
        )
        await wadm.publish("hello", "deployed")
        await running_flux.is_ready(OF_APPLICATION)

        commit = repository.change("host-group/hosts.yaml", lambda found: found["spec"].update(hostReplicas=2))
        running_flux.fetch()
        await running_flux.is_ready(OF_HOSTS, commit)
        assert hosts.status(HOSTS)["readyReplicas"] == 2

        await wadm.publish("hello", "failed", "no host fits")
        await apps.condition("hello", "Stalled", "True")
        running_flux.reconcile(KUSTOMIZATIONS, OF_APPLICATION)
        await eventually(
            lambda: running_flux.reported(OF_APPLICATION)[:2] == ("False", "HealthCheckFailed"),
            "it is told of",
            seconds=SECONDS,
        )
        await wadm.publish("hello", "deployed")
        await apps.condition("hello", "Ready", "True")
        running_flux.reconcile(KUSTOMIZATIONS, OF_APPLICATION)
        await running_flux.is_ready(OF_APPLICATION)

        without = repository.take_away(APPLICATION)
        running_flux.fetch()
        await apps.deleted("hello")
        assert "del" in wadm.requested
        await running_flux.is_ready(OF_APPLICATION, without)
        again = repository.bring_back(APPLICATION)
        running_flux.fetch()
        await apps.synced("hello")
        await wadm.publish("hello", "deployed")
        await running_flux.is_ready(OF_APPLICATION, again)

        # Not in this thread, where our services run.
        await asyncio.to_thread(kubectl, "delete", "-k", str(example), f"--timeout={DELETION_SECONDS}s")
        await eventually(lambda: is_deleted(hosts.api), "the namespace goes, and what is in it", seconds=SECONDS)


def is_deleted(api: Api) -> bool:
    return not api.ok(NAMESPACES.path(None, HELLO))
