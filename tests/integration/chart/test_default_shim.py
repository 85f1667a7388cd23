"""The Job of the chart that applies the default Shim, on a real server, with its permissions and no others."""

from __future__ import annotations

import asyncio
import http
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.chart.installed import process
from support.chart.rendered import Manifest, rendered
from support.cluster.grants import SYSTEM, granted, until_bound
from trellis import names
from trellis.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    JOBS,
    NAMESPACES,
    SERVICE_ACCOUNTS,
    SHIMS,
    Resource,
)
from trellis_dev.definitions import define_kinds
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.progress import Quiet

pytestmark = pytest.mark.cluster

NAME = "trellis-default-shim"
SECONDS = 120
KINDS: dict[str, Resource] = {
    res.kind: res for res in (SERVICE_ACCOUNTS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, CONFIGMAPS, JOBS)
}


def of_the_shim(**default: Any) -> list[Manifest]:
    found = rendered(defaultShim={"sha256": {"amd64": "ab" * 32}} | default)
    label = "app.kubernetes.io/component"
    return [item for item in found if item["metadata"].get("labels", {}).get(label) == "default-shim"]


@pytest.fixture
def applied(cluster: ClusterInfo, cluster_api: Api) -> Iterator[list[Manifest]]:
    """The objects of the chart for the default Shim; they and the Shim are taken away in the end."""
    define_kinds(cluster, Quiet())
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    cluster_api.call("POST", NAMESPACES.path(), namespace)
    found = [item for item in of_the_shim() if item["kind"] in KINDS]
    for item in found:
        status, answer = cluster_api.call("POST", KINDS[item["kind"]].path(SYSTEM), item)
        assert status == http.HTTPStatus.CREATED, answer
    for item in found:
        if "roleRef" in item:
            until_bound(cluster_api, item)
    yield found
    for item in found:
        cluster_api.call("DELETE", KINDS[item["kind"]].path(SYSTEM, item["metadata"]["name"]))
    cluster_api.call("DELETE", SHIMS.path(None, "wasi"))


async def run(found: list[Manifest], environment: dict[str, str], folder: Path) -> None:
    """Do what the pod of the Job would, with the file that its volume has."""
    [job] = [item for item in found if item["kind"] == "Job"]
    [data] = [item["data"] for item in found if item["kind"] == "ConfigMap"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    *arguments, path = container["command"]
    file = folder / Path(path).name
    file.write_text(data[file.name])
    variables = {item["name"]: item["value"] for item in container["env"]}
    log = folder / "job.log"
    done = await process([*arguments, str(file)], variables | environment, log)
    assert await asyncio.wait_for(done.wait(), SECONDS) == 0, log.read_text()


async def test_the_job_creates_the_shim_and_changes_it_with_the_chart(
    cluster: ClusterInfo, cluster_api: Api, applied: list[Manifest], tmp_path: Path
) -> None:
    with granted(cluster, cluster_api, NAME, tmp_path) as account:
        account.log_in()
        environment = {"TRELLIS_KUBECONFIG": str(account.kubeconfig)}
        await run(applied, environment, tmp_path)
        created = cluster_api.call("GET", SHIMS.path(None, "wasi"))[1]
        assert created["metadata"]["labels"][names.LABEL_KWASM_DEFAULT] == "true"
        await run(applied, environment, tmp_path)
        assert cluster_api.call("GET", SHIMS.path(None, "wasi"))[1] == created, "nothing changed"
        await run(of_the_shim(maxUpdate=3), environment, tmp_path)
    changed = cluster_api.call("GET", SHIMS.path(None, "wasi"))[1]
    assert changed["spec"]["rolloutStrategy"]["rolling"] == {"maxUpdate": 3}
    assert changed["spec"]["fetchStrategy"] == created["spec"]["fetchStrategy"]
