"""`kubectl kustomize deploy/base | kubectl apply -f -`, and plain `kubectl apply -f deploy/crds/`, on a real server.

What the Job and the Deployments say is run as processes, since no kubelet runs here.
"""

from __future__ import annotations

import asyncio
import http
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.chart.installed import BUS_SECRET, OURS, Installation, Where, process, processes, variables
from support.chart.rendered import CHART, bus_server, of, rendered
from support.cluster.grants import SYSTEM, Granted, granted
from support.nodes.shims import Shim
from support.wadm.applications_kind import ApplicationsKind, until
from trellis.crds.kinds import KINDS
from trellis.kube.resources import BUDGETS, DEFINITIONS, DEPLOYMENTS, JOBS, NAMESPACES, SECRETS, Resource
from trellis_dev.localcluster import ClusterInfo, tools
from trellis_dev.localcluster.api import Api
from trellis_tools.base.generate import differences, documents, render

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.timeout(420)]

DEPLOY = CHART.parents[1]
JOB = "trellis-bus-keys"
KEPT = {"Namespace", "CustomResourceDefinition"}
SECONDS = 120
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)


ALWAYS_CONFIGURED = {"poddisruptionbudget.policy", "statefulset.apps"}
"""kubectl calls them configured, and nothing changes: it compares selectors and claims as a whole, with defaults."""


class Kubectl:
    """The real one."""

    def __init__(self, cluster: ClusterInfo) -> None:
        self._environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}

    def __call__(self, *arguments: str, standard_input: str | None = None) -> str:
        """Return what it printed; it has to succeed."""
        done = subprocess.run(
            [str(tools.ensure("kubectl")), *arguments],
            env=self._environment,
            input=standard_input,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def applications(cluster_api: Api) -> Iterator[ApplicationsKind]:
    """Provide the CRD of Application, removed before and after the test: other tests define it too."""
    kind = ApplicationsKind(cluster_api)
    kind.clear()
    yield kind
    kind.clear()


@pytest.fixture
def base(cluster: ClusterInfo, cluster_api: Api, applications: ApplicationsKind) -> Iterator[str]:
    """The manifests, which are taken away in the end."""
    del applications
    kubectl = Kubectl(cluster)
    text = kubectl("kustomize", str(DEPLOY / "base"))
    yield text
    found = [item for item in yaml.safe_load_all(text) if item["kind"] not in KEPT]
    kubectl("delete", "--ignore-not-found", "-f", "-", standard_input=yaml.safe_dump_all(found))
    cluster_api.call("DELETE", SECRETS.path(SYSTEM, BUS_SECRET))
    installers = NAMESPACES.path(None, "trellis-installers")
    cluster_api.call("DELETE", installers)
    until(lambda: cluster_api.call("GET", installers)[0] == http.HTTPStatus.NOT_FOUND, "the namespace is gone")


def generations(api: Api) -> dict[str, int]:
    """Return how often the spec of each object was changed."""
    lists = [api.call("GET", res.path(SYSTEM) + OURS)[1]["items"] for res in (DEPLOYMENTS, BUDGETS, STATEFUL_SETS)]
    found = {item["metadata"]["uid"]: item["metadata"]["generation"] for items in lists for item in items}
    assert len(found) > 7
    return found


async def run_job(api: Api, account: Granted, directory: Path) -> None:
    """Do what its pod would, as its account."""
    status, job = api.call("GET", JOBS.path(SYSTEM, JOB))
    assert status == http.HTTPStatus.OK
    [container] = job["spec"]["template"]["spec"]["containers"]
    log = directory / "job.log"
    environment = variables(container) | {"TRELLIS_KUBECONFIG": str(account.kubeconfig)}
    done = await process(container["command"], environment, log)
    assert await asyncio.wait_for(done.wait(), SECONDS) == 0, log.read_text()


@pytest.mark.thorough
async def test_a_base_applied_twice_exists_once_and_becomes_ready_with_its_own_keys(
    cluster: ClusterInfo, cluster_api: Api, base: str, shim: Shim, tmp_path: Path
) -> None:
    del shim  # the fleet's kinds are defined
    kubectl = Kubectl(cluster)
    kubectl("apply", "-f", "-", standard_input=base)
    before = generations(cluster_api)
    again = kubectl("apply", "-f", "-", standard_input=base).splitlines()
    assert len(again) == len(list(yaml.safe_load_all(base)))
    changed = [line for line in again if not line.endswith(" unchanged")]
    assert all(line.split("/")[0] in ALWAYS_CONFIGURED for line in changed), changed
    assert generations(cluster_api) == before

    installation = Installation(cluster_api)
    with granted(cluster, cluster_api, JOB, tmp_path) as account:
        account.log_in()
        await run_job(cluster_api, account, tmp_path)
        made = installation.secret(BUS_SECRET)
        await run_job(cluster_api, account, tmp_path)
        assert installation.secret(BUS_SECRET) == made, "what is there stays"
    with bus_server(installation.bus_files(), tmp_path) as running:
        where = Where(cluster, cluster_api, tmp_path, running.url.split("//")[1])
        async with processes(where, installation.deployments()) as started:
            assert len(started) == 7
            for item in started:
                await item.ready()
            for item in started:
                assert "ermission" not in item.output(), item.output()


def test_definitions_are_applied_as_kubectl_does_it_and_without_that_of_applications(
    cluster: ClusterInfo, cluster_api: Api, applications: ApplicationsKind
) -> None:
    kubectl = Kubectl(cluster)
    kubectl("apply", "-f", str(DEPLOY / "crds"))
    again = kubectl("apply", "-f", str(DEPLOY / "crds")).splitlines()
    assert sorted(again) == sorted(
        f"customresourcedefinition.apiextensions.k8s.io/{kind.name} unchanged" for kind in KINDS
    )
    assert applications.stands() is None, "KubeVela has a kind of that name: it is applied by itself"
    kubectl("apply", "-f", str(DEPLOY / "crds" / "applications"))
    for kind in KINDS:
        status, found = cluster_api.call("GET", DEFINITIONS.path(None, kind.name))
        assert status == http.HTTPStatus.OK
        annotation = found["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
        assert len(annotation.encode()) < 200_000


def test_the_committed_base_is_what_the_chart_gives_now() -> None:
    assert differences(DEPLOY / "base", documents(render(CHART))) == []


def test_the_base_gives_the_permissions_of_the_chart_and_what_the_keys_need() -> None:
    wanted = [item for item in rendered() if item["kind"] in {"Role", "ClusterRole"}]
    files = [
        item
        for name in ("rbac.yaml", "bus-keys.yaml")
        for item in yaml.safe_load_all((DEPLOY / "base" / name).read_text())
    ]
    has = {key: item["rules"] for key, item in of(files).items() if "rules" in item}
    extra = has.pop(("Role", SYSTEM, JOB))
    assert has == {key: item["rules"] for key, item in of(wanted).items()}
    assert {verb for rule in extra for verb in rule["verbs"] if "resourceNames" not in rule} == {"create"}
    assert {resource for rule in extra for resource in rule["resources"]} == {"secrets"}


def test_the_base_holds_no_secret_and_no_mark_of_helm() -> None:
    everything = [item for path in (DEPLOY / "base").glob("*.yaml") for item in yaml.safe_load_all(path.read_text())]
    assert not [item for item in everything if item["kind"] == "Secret"]
    assert "helm" not in yaml.safe_dump_all(everything).lower().replace("../helm/trellis/definitions", "")
