"""The pages of migrations and upgrades on a real API server: their commands, from what the former version leaves.

No service runs here: the test checks which objects the commands of a page leave to the services.
"""

from __future__ import annotations

import http
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart.rendered import SYSTEM, helm
from support.lattices.host_groups import custom_resource
from support.nodes.installers import INSTALLER_STAGES
from support.nodes.leftovers import as_new, leftover
from support.suite.page_steps import PageShell, replaced, section, steps
from support.suite.pages import DOCS
from support.wadm.applications_kind import until
from trellis import names
from trellis.crds.kinds import KINDS
from trellis.kube.resources import (
    API_SERVICES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEFINITIONS,
    DEPLOYMENTS,
    HOST_CONFIGS,
    NAMESPACES,
    NODES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from trellis_dev.commands.images import chart_values
from trellis_dev.localcluster import owned_cluster
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.thorough, pytest.mark.timeout(420)]

Manifest = dict[str, Any]
DATA = Path(__file__).parents[2] / "data"
FORMER_CHART = DATA / "chart/trellis-0.2.99.tgz"
INSTALL, UPGRADE = DOCS / "install.md", DOCS / "operations/upgrade.md"
OWNER = "meta.helm.sh/release-name"
GROUP = "minimal"


class User:
    """A user with an administrator's kubeconfig, in a cluster of their own."""

    def __init__(self, api: Api, shell: PageShell) -> None:
        self.api = api
        self.shell = shell

    def create(self, res: Resource, manifest: Manifest, namespace: str | None = None) -> Manifest:
        status, answer = self.api.call("POST", res.path(namespace), manifest)
        assert status == http.HTTPStatus.CREATED, answer
        return answer

    def get(self, res: Resource, name: str, namespace: str | None = None) -> Manifest:
        status, found = self.api.call("GET", res.path(namespace, name))
        assert status == http.HTTPStatus.OK, found
        return found

    def namespace(self, name: str) -> None:
        self.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def crd_owners(self) -> set[str | None]:
        """Return the Helm releases that own the CRDs of Trellis, all of which exist."""
        found = [self.get(DEFINITIONS, kind.name)["metadata"] for kind in KINDS]
        return {metadata.get("annotations", {}).get(OWNER) for metadata in found}

    def released(self) -> str:
        """Return the state of the release of Trellis."""
        [release] = json.loads(self.shell.run(f"helm list --namespace {SYSTEM} --output json"))
        return str(release["status"])


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    with owned_cluster(nodes=1, kwok_stages=INSTALLER_STAGES) as info:
        kubeconfig = Path(info.kubeconfig)
        api = Api.of_kubeconfig(kubeconfig)
        images = tmp_path / "build/images/values.yaml"
        images.parent.mkdir(parents=True)
        images.write_text(yaml.safe_dump(chart_values("0" * 64)))
        yield User(api, PageShell(tmp_path, kubeconfig, (info.bin_dir,)))
        api.close()


def group_of_the_operator(user: User) -> Manifest:
    """Define the CRD of wasmcloud-operator and a host group with the operator's finalizer; return the group."""
    definition = json.loads((DATA / "crds/wasmcloud-operator.json").read_text())
    user.create(DEFINITIONS, definition)
    until(lambda: user.api.ok(HOST_CONFIGS.path()), "the kind is served")
    manifest = custom_resource(GROUP)
    manifest["metadata"] = {"name": GROUP, "finalizers": [names.WASMCLOUD_OPERATOR]}
    return user.create(HOST_CONFIGS, manifest, "default")


def test_from_wasmcloud_operator(user: User) -> None:
    operator, shell = "wadm-operator", user.shell
    page = (DOCS / "migration/wasmcloud-operator.md").read_text(encoding="utf-8")
    before = group_of_the_operator(user)
    user.namespace(operator)
    for res, what in (
        (SERVICE_ACCOUNTS, "account"),
        (CLUSTER_ROLES, "role"),
        (CLUSTER_ROLE_BINDINGS, "binding"),
        (SERVICES, "own_service"),
        (DEPLOYMENTS, "deployment"),
        (API_SERVICES, "registration"),
    ):
        user.create(res, as_new(leftover("wasmcloud", what, namespace=operator)), operator if res.namespaced else None)

    stop, migrate, crds = steps(page)
    shell.run(stop)
    shell.run(migrate, answer="y\n")
    until(lambda: user.api.ok("/apis/core.oam.dev/v1beta1/applications"), "applications are served")
    shell.run(crds)
    [option] = re.findall(r"Trellis with `(--set [^`]+)`", page)
    [install] = steps(section(INSTALL, "Install"))
    shell.run(f"{install.strip()} {option}")
    assert user.released() == "deployed"
    assert user.crd_owners() == {None}
    after = user.get(HOST_CONFIGS, GROUP, "default")
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])
    assert user.get(DEPLOYMENTS, "trellis-host-manager", SYSTEM)

    upgrade(user)
    assert user.get(HOST_CONFIGS, GROUP, "default")["metadata"]["uid"] == before["metadata"]["uid"]


def upgrade(user: User) -> None:
    """Upgrade a release without CRDs as its page does."""
    assert "With `crds.install=false`, run `trellis crds apply`" in UPGRADE.read_text(encoding="utf-8")
    [command] = steps(UPGRADE.read_text(encoding="utf-8"))
    user.shell.run("trellis crds apply")
    user.shell.run(command)
    assert user.released() == "deployed"
    assert user.crd_owners() == {None}


def test_upgrade_of_a_release_without_crds(user: User, tmp_path: Path) -> None:
    crds = tmp_path / "crds.yaml"
    rendered = helm("template", "trellis", str(FORMER_CHART))
    kinds = [item for item in yaml.safe_load_all(rendered) if item and item["kind"] == "CustomResourceDefinition"]
    assert kinds
    crds.write_text(yaml.safe_dump_all(kinds))
    user.shell.run(f"kubectl apply --server-side -f {crds}")
    user.shell.run(
        f"helm install trellis {FORMER_CHART} --namespace {SYSTEM} --create-namespace --set crds.install=false"
    )
    upgrade(user)


def test_from_the_kwasm_operator(user: User, tmp_path: Path) -> None:
    shell, page = user.shell, DOCS / "migration/kwasm.md"
    operator = as_new(leftover("kwasm", "deployment", namespace="kwasm"))
    image, [container] = "example.com/kwasm-installer:1", operator["spec"]["template"]["spec"]["containers"]
    variables = {item["name"]: item["value"] for item in container["env"]} | {"INSTALLER_IMAGE": image}
    container["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    chart = tmp_path / "kwasm-operator"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: kwasm-operator\nversion: 0.2.3\n")
    (chart / "templates/all.yaml").write_text(yaml.safe_dump(operator))
    shell.run(
        f"helm install kwasm-operator {chart} --namespace kwasm --create-namespace"
        f" --set kwasmOperator.installerImage={image},kwasmOperator.autoProvision=true"
    )
    recorded = as_new(leftover("kwasm", "node", node="kwasm-1"))
    user.create(NODES, recorded)

    stop, migrate = steps(section(page, "From the KWasm operator"))
    shell.run(stop)
    shell.run(migrate, answer="y\n")
    [install] = steps(section(page, "Values of KWasm's chart"))
    shell.run(replaced(install, **{"…": "registry.example.com"}), answer="y\n")
    labels = user.get(NODES, "kwasm-1")["metadata"]["labels"]
    assert labels[names.LABEL_PROVISIONED] == "kwasm-1"
    [service] = user.get(DEPLOYMENTS, "trellis-provisioner", SYSTEM)["spec"]["template"]["spec"]["containers"]
    settings = {item["name"]: item.get("value") for item in service["env"]}
    assert settings["TRELLIS_INSTALLER_IMAGE"] == image
    assert settings["TRELLIS_AUTO_PROVISION"] == "true"
    assert user.api.call("GET", DEPLOYMENTS.path("kwasm", "kwasm-operator"))[0] == http.HTTPStatus.NOT_FOUND
