"""The provisioner's Job on a real node: a private registry, behind a proxy with a password, by a CA of one's own."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_interface
from typing import Any

import pytest

from node_installer.fetch.web import basic
from provisioner.domain.resources import Task, make_installer_job
from provisioner.settings import Settings
from support.nodes.installer_image import INSTALLER, installer_image
from support.nodes.installer_runs import Ended, InstallerJobs
from support.nodes.node_trees import tree
from support.nodes.real_nodes import RealNode
from support.nodes.shim_archives import WORKING, archive, program
from trellis.installer_api.result import FailureReason, Outcome
from trellis.installer_api.spec import InstallSpec, Source, WantedShim
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.views import Target
from trellis_dev.localcluster import owned_cluster
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.realnode_faults import load_image, run_in
from unit.node_installer.servers import Answer, Registry, Server, certificates, serving

HOW = How(Lines(), threading.Event())
LOGIN = "me:hunter2"
SETTINGS = Settings(
    node_installer_image=INSTALLER,
    installer_pull_policy="Never",
    installer_namespace="default",
    installer_proxy_secret="proxy",
    installer_ca_config_map="our-ca",
    job_retries=0,
)


@dataclass(frozen=True)
class World:
    """A real node; this machine serves it a registry that wants a password, and a proxy."""

    node: RealNode
    registry: Server
    proxy: Server
    image: str

    def job(self, pull_secret: str, *, removes: bool = False) -> dict[str, Any]:
        """Return the Job as the provisioner makes it."""
        found = view_node(json.loads(self.node.kubectl("get", "node", self.node.name, "-o", "json")))
        source = Source(f"oci://{self.registry.host}/team/shim@{self.image}", None, pull_secret=pull_secret)
        spec = InstallSpec((WantedShim("wasi", "wasi", "v1", "trellis", (source,)),))
        target = Target(() if removes else (("wasi", pull_secret),))
        return make_installer_job(SETTINGS.installer(), found, Task(target, spec=spec, removes=removes), 1, None)

    def run(self, pull_secret: str, *, removes: bool = False) -> Ended:
        """Run the Job to its end."""
        job = self.job(pull_secret, removes=removes)
        assert "hunter2" not in json.dumps(job)
        self.node.kubectl.create(job)
        name = job["metadata"]["name"]
        ended = InstallerJobs(self.node).ended(name)
        self.node.kubectl("delete", "job", name, "--wait=false")
        return ended


def an_object(kind: str, name: str, data: dict[str, str], **fields: str) -> dict[str, Any]:
    """A ConfigMap or Secret; a Secret's data is encoded."""
    if kind == "Secret":
        data = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data": data, **fields}


@pytest.fixture(scope="module")
def world(machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    assert machine
    image, registry = installer_image(HOW), Registry(login=LOGIN)
    title = "wasi.tar.gz"
    digest = registry.manifest("1.0", registry.blob(archive(program("v1", HOW)), title=title))
    with owned_cluster(real_nodes=1) as info:
        node = RealNode(info)
        load_image(info.name, node.name, image)
        address = str(ip_interface(f"{info.real_nodes[0].address}/24").network[1])
        tls = certificates(tmp_path_factory.mktemp("tls"), address)
        with (
            serving(registry.respond, tls, address) as server,
            serving(lambda _: Answer(500), address=address) as proxy,
        ):
            registry.url = server.url
            user, _, password = LOGIN.partition(":")
            auths = {"auths": {server.host: {"username": user, "password": password}}}
            proxies = {"HTTPS_PROXY": proxy.url.replace("http://", f"http://{LOGIN}@")}
            kind = "kubernetes.io/dockerconfigjson"
            node.kubectl.create(an_object("ConfigMap", "our-ca", {"ca.crt": (tls / "ca.pem").read_text()}))
            node.kubectl.create(an_object("Secret", "proxy", proxies))
            node.kubectl.create(an_object("Secret", "team-a", {".dockerconfigjson": json.dumps(auths)}, type=kind))
            yield World(node, server, proxy, digest)


def test_a_pull_secret_that_is_missing_is_reported_by_the_installer_itself(world: World) -> None:
    before = tree(world.node)
    ended = world.run("team-b")
    assert ended.result.reason is FailureReason.DOWNLOAD_FAILED, ended.log
    assert "team-b" in ended.result.message
    assert tree(world.node) == before


def test_a_shim_comes_from_a_private_registry_through_a_proxy_and_goes_without_either(world: World) -> None:
    before = tree(world.node)
    ended = world.run("team-a")
    assert ended.result.outcome is Outcome.INSTALLED, ended.log
    script = "find /opt -name 'containerd-shim-wasi*' -exec {} -v \\;"
    assert (
        f"Version: {WORKING['v1']}\n" in run_in(world.node.cluster.name, world.node.name, ["sh", "-c", script]).stdout
    )
    assert world.proxy.requests
    for request in world.proxy.requests:
        assert request.path == f"CONNECT {world.registry.host}"
        assert request.headers["proxy-authorization"] == basic(LOGIN)
    [requested] = [request for request in world.registry.requests if request.path.startswith("/token")]
    assert requested.headers["authorization"] == basic(LOGIN)

    world.node.kubectl("delete", "secret", "proxy", "team-a")
    world.node.kubectl("delete", "configmap", "our-ca")
    ended = world.run("team-a", removes=True)
    assert ended.result.outcome is Outcome.REMOVED, ended.log
    assert tree(world.node) == before
