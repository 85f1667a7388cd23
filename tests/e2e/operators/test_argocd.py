"""deploy/examples/argocd with Argo CD itself: the group and both applications are as in git, and Argo CD says how.

Nodes are simulated, and a stand-in answers for wadm. The examples are applied as they stand; substituted are the
address of the repository, and in it the address of the lattice's NATS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.examples.applied_examples import Kubectl
from support.examples.example_overlays import overlay, replaced
from support.examples.example_repository import ExampleRepository, example_repository
from support.examples.example_worlds import HELLO
from support.examples.folders import manifest
from support.lattices.host_world import HostWorld
from support.nodes.fleet import eventually
from support.operators.argocd import APPLICATIONS, NAMESPACE, argocd
from support.operators.operator_processes import Operators
from support.wadm.application_world import ApplicationWorld, application_world
from support.wadm.wadm_stand_in import WadmStandIn
from trellis.kube.resources import HOST_CONFIGS, NAMESPACES, PODS
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.ports import LOOPBACK

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

HOSTS = "hosts"
BOTH = ("hello", "greeter")
"""The Applications that the example keeps."""
SECONDS = 120.0
DELETION_SECONDS = 110


class ArgoCD:
    """Requests to Argo CD and the status of its one Application."""

    def __init__(self, api: Api) -> None:
        self._api = api

    @property
    def status(self) -> dict[str, Any]:
        """The status as it is, {} if there is none."""
        found: dict[str, Any] = self._api.call("GET", APPLICATIONS.path(NAMESPACE, "hello"))[1].get("status") or {}
        return found

    @property
    def verdict(self) -> tuple[str, str]:
        """Return the sync status and the health of the Application."""
        status = self.status
        return status.get("sync", {}).get("status", ""), status.get("health", {}).get("status", "")

    def refresh(self) -> None:
        """Ask as ``argocd app get --refresh`` does, so that an interval need not pass."""
        annotations = {"argocd.argoproj.io/refresh": "hard"}
        self._api.call("PATCH", APPLICATIONS.path(NAMESPACE, "hello"), {"metadata": {"annotations": annotations}})

    async def reaches(self, sync: str, health: str, commit: str = "") -> None:
        """Wait until it says so, of a commit."""

        def there() -> bool:
            commits = set(self.status.get("sync", {}).get("revisions") or ())
            return self.verdict == (sync, health) and commits >= ({commit} if commit else set())

        try:
            await eventually(there, f"{sync}, {health}", seconds=SECONDS)
        except AssertionError:
            pytest.fail(f"not {sync}, {health}: {self.status}")


@pytest.fixture
def apps(hello: HostWorld, nats_server: NatsServer) -> Iterator[ApplicationWorld]:
    with application_world(hello, nats_server.port, HELLO) as made:
        yield made


@pytest.fixture
def running_argocd(operators: Operators, cluster_api: Api) -> Iterator[ArgoCD]:
    with argocd(operators):
        yield ArgoCD(cluster_api)


@pytest.fixture
def repository(nats_server: NatsServer, tmp_path: Path) -> Iterator[ExampleRepository]:
    with example_repository(tmp_path / "git", nats_server.port) as served:
        yield served


async def test_argo_cd_applies_the_repository_and_reports_its_health(
    running_argocd: ArgoCD, repository: ExampleRepository, apps: ApplicationWorld, kubectl: Kubectl, tmp_path: Path
) -> None:
    hosts = apps.hosts
    count = len(manifest("argocd", "Application")["spec"]["sources"])
    addresses = {f"_spec_sources_{number}_repoURL": repository.url for number in range(count)}
    example = overlay(tmp_path / "over", "argocd", replaced("Application", **addresses))
    async with WadmStandIn(f"nats://{LOOPBACK}:{apps.port}", HELLO) as wadm, hosts.service(), apps.manager():
        kubectl("apply", "-k", str(example))
        await running_argocd.reaches("Synced", "Progressing")
        await hosts.settled(HOSTS)
        for name in BOTH:
            await apps.synced(name)
            await wadm.publish(name, "deployed")
        await running_argocd.reaches("Synced", "Healthy")

        await wadm.publish("hello", "failed", "no host fits")
        await running_argocd.reaches("Synced", "Degraded")
        await wadm.publish("hello", "deployed")
        await running_argocd.reaches("Synced", "Healthy")

        [pod] = hosts.pods(HOSTS)
        hosts.wait_in(pod, "ImagePullBackOff", "no such image")
        await running_argocd.reaches("Synced", "Degraded")
        hosts.call("DELETE", PODS, pod["metadata"]["name"])
        await running_argocd.reaches("Synced", "Healthy")

        # What an autoscaler sets is not in git, and stays.
        kubectl("scale", "whc", HOSTS, "-n", HELLO, "--replicas=2")
        await hosts.settled(HOSTS)
        commit = repository.change("host-group/hosts.yaml", lambda found: found["spec"].update(hostLabels={"a": "b"}))
        running_argocd.refresh()
        await running_argocd.reaches("Synced", "Healthy", commit)
        await hosts.settled(HOSTS)
        spec = hosts.call("GET", HOST_CONFIGS, HOSTS)["spec"]
        assert (spec["hostReplicas"], spec["hostLabels"]) == (2, {"a": "b"})

        # What is in git and was changed by hand does not.
        changed = apps.patch("greeter", {"metadata": {"annotations": {"description": "by hand"}}})
        assert changed["metadata"]["annotations"]["description"] == "by hand"
        as_in_git = manifest("secret", "Application")["metadata"]["annotations"]["description"]
        await apps.until(
            "greeter", "as in git", lambda found: found["metadata"]["annotations"]["description"] == as_in_git
        )

        without = repository.take_away("hello/application.yaml")
        running_argocd.refresh()
        await apps.deleted("hello")
        await running_argocd.reaches("Synced", "Healthy", without)
        repository.bring_back("hello/application.yaml")
        running_argocd.refresh()
        await apps.synced("hello")

        # Not in this thread, where our services run.
        await asyncio.to_thread(kubectl, "delete", "-k", str(example), f"--timeout={DELETION_SECONDS}s")
        await eventually(lambda: is_deleted(hosts.api), "the namespace goes, and what is in it", seconds=SECONDS)


def is_deleted(api: Api) -> bool:
    return not api.ok(NAMESPACES.path(None, HELLO))
