"""`trellis crds` on a real API server, its aggregator included: nothing of others is overwritten."""

from __future__ import annotations

import http
import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.cluster.definitions import foreign_applications, kubevela_applications
from support.suite.naming import lacking
from support.suite.typed import Done, bare_environment, typed_meanwhile
from support.wadm.applications_kind import ApplicationsKind, until
from trellis.kube.crd_ownership import Place
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

Manifest = dict[str, Any]


class Cluster(ApplicationsKind):
    """The API server, without a CRD of applications, and the command."""

    def __init__(self, api: Api, info: ClusterInfo) -> None:
        super().__init__(api)
        self._environment = bare_environment(TRELLIS_KUBECONFIG=str(info.kubeconfig))

    async def run(self, *arguments: str) -> Done:
        return await typed_meanwhile(self._environment, "crds", *arguments)

    async def place(self) -> tuple[int, Manifest]:
        done = await self.run("check", "applications", "-o", "json")
        [kind] = json.loads(done.stdout)["crds"]
        return done.returncode, kind


@pytest.fixture
def kinds(cluster_api: Api, cluster: ClusterInfo) -> Iterator[Cluster]:
    found = Cluster(cluster_api, cluster)
    found.clear()
    yield found
    found.clear()


async def test_applications_are_defined_once_and_served(kinds: Cluster) -> None:
    code, kind = await kinds.place()
    assert (code, kind["state"]) == (1, "Missing")
    done = await kinds.run("apply", "applications", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "ok": True,
        "crds": [{"name": "applications.core.oam.dev", "state": "Current", "message": ""}],
    }
    assert kinds.served()
    stands = kinds.stands()
    again = await kinds.run("apply", "applications")
    assert again.returncode == 0, again.stderr
    assert kinds.stands() == stands, "a second run writes nothing"
    assert (await kinds.place())[0] == 0


@pytest.mark.thorough
async def test_the_crd_of_kubevela_is_never_replaced(kinds: Cluster) -> None:
    kinds.define(kubevela_applications())
    before = kinds.stands()
    assert before is not None
    code, kind = await kinds.place()
    assert (code, kind["state"]) == (1, "KubeVela")
    for arguments in (("apply",), ("apply", "--adopt"), ("apply", "applications", "--adopt")):
        done = await kinds.run(*arguments)
        assert done.returncode == 1
        assert done.stderr.startswith("Error: ")
        for named in ("KubeVela", "applications.core.oam.dev"):
            assert named in done.stderr
    after = kinds.stands()
    assert after is not None
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_crd_of_an_unknown_owner_is_adopted_only_on_request(kinds: Cluster) -> None:
    kinds.define(foreign_applications(shortNames=["a"]))
    refused = await kinds.run("apply", "applications")
    assert refused.returncode == 1
    assert "`trellis crds apply applications --adopt`" in refused.stderr
    assert (await kinds.place())[1]["state"] == Place.UNKNOWN
    object_path = "/apis/core.oam.dev/v1beta1/namespaces/default/applications"
    shop = {
        "apiVersion": "core.oam.dev/v1beta1",
        "kind": "Application",
        "metadata": {"name": "adopted"},
        "spec": {"components": []},
    }
    assert kinds.api.call("POST", object_path, shop)[0] == http.HTTPStatus.CREATED
    done = await kinds.run("apply", "applications", "--adopt")
    assert done.returncode == 0, done.stderr
    assert (await kinds.place())[1]["state"] == "Current"
    assert kinds.api.call("GET", f"{object_path}/adopted")[0] == http.HTTPStatus.OK
    stands = kinds.stands()
    assert stands is not None
    assert stands["metadata"]["labels"] == {"made-by": "somebody", "app.kubernetes.io/part-of": "trellis"}
    assert "shortNames" not in stands["spec"]["names"]


async def test_a_crd_that_the_api_server_does_not_serve_is_reported(kinds: Cluster) -> None:
    kinds.register("wadm-operator")
    done = await kinds.run("apply", "applications")
    assert done.returncode == 1
    assert "trellis migrate wasmcloud-operator" in done.stderr
    assert kinds.stands() is None, "found before anything is applied"
    kinds.clear()
    assert (await kinds.run("apply", "applications")).returncode == 0
    kinds.register("some-api")
    until(lambda: not kinds.served(), "it is hidden")
    code, kind = await kinds.place()
    assert (code, kind["state"]) == (1, "Hidden")
    assert "Service wasm/some-api" in kind["message"]
    refused = await kinds.run("apply", "applications", "--adopt")
    assert refused.returncode == 1
    assert "`kubectl delete apiservice v1beta1.core.oam.dev`" in refused.stderr


async def test_an_unknown_kind_is_one_line(kinds: Cluster) -> None:
    done = await kinds.run("check", "pods")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    kinds_of_ours = ("shim", "hostgroup", "secretgrant", "controller", "application")
    assert lacking(done.stderr, '"pods"', *kinds_of_ours) == []
