"""deploy/examples say nothing that is not a field, and fit together; tests/integration/examples applies them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from secrets_backend.domain.decide import ConnectionGrant, view_grant
from secrets_backend.domain.resources import Reader, make_impersonation, make_reading
from secrets_backend.domain.tokens import Token
from support.examples.folders import EXAMPLES, Manifest, files, folders, kustomization, manifest, manifests
from support.suite.commands import expect_command
from trellis.crds.application import Application
from trellis.crds.host_config import WasmCloudHostConfig
from trellis.crds.secret_grants import SecretGrant
from trellis.crds.shim import Shim
from trellis.crds.wasm_controllers import WasmController
from trellis.kube.resources import HOST_CONFIGS
from trellis_cli.controllers.roles import actors_of, manifests_of
from trellis_cli.secrets.model import RuleInputs, judge, uses_of

README = (EXAMPLES / "README.md").read_text()
MODELS = {
    ("runtime.spinkube.dev/v1alpha1", "Shim"): Shim,
    ("k8s.wasmcloud.dev/v1alpha1", "WasmCloudHostConfig"): WasmCloudHostConfig,
    ("core.oam.dev/v1beta1", "Application"): Application,
    ("trellis.dev/v1alpha1", "WasmController"): WasmController,
    ("trellis.dev/v1alpha1", "SecretGrant"): SecretGrant,
}
OURS = [
    pytest.param(item, id=f"{folder}: {item['kind']} {item['metadata']['name']}")
    for folder in folders()
    for item in manifests(folder)
    if (item["apiVersion"], item["kind"]) in MODELS
]


def images(value: Any) -> Iterator[str]:
    """Yield whatever is called an image."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name == "image" and isinstance(item, str):
                yield item
            else:
                yield from images(item)
    elif isinstance(value, list):
        for item in value:
            yield from images(item)


def test_every_folder_is_documented_and_every_documented_folder_exists() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", README, re.MULTILINE)
    assert sorted(rows) == folders()


@pytest.mark.parametrize("folder", folders())
def test_every_file_of_a_folder_belongs_to_its_example(folder: str) -> None:
    found = {path.name for path in (EXAMPLES / folder).glob("*.yaml")} - {"kustomization.yaml"}
    assert set(files(folder)) == found


@pytest.mark.parametrize("found", OURS)
def test_an_object_of_trellis_has_only_known_fields(found: Manifest) -> None:
    read = MODELS[found["apiVersion"], found["kind"]].model_validate({"spec": found["spec"]})  # type: ignore[attr-defined]
    assert read.model_dump(by_alias=True, exclude_unset=True, mode="json") == {"spec": found["spec"]}


def test_files_that_argo_cd_and_flux_reference_are_in_the_repository() -> None:
    argo = [source["path"] for source in manifest("argocd", "Application")["spec"]["sources"]]
    flux = [item["spec"]["path"] for item in manifests("flux") if item["kind"] == "Kustomization"]
    for path in (*argo, *flux):
        assert (EXAMPLES.parents[1] / path / "kustomization.yaml").exists(), path
    [repository] = [item for item in manifests("flux") if item["kind"] == "GitRepository"]
    assert {source["repoURL"] for source in manifest("argocd", "Application")["spec"]["sources"]} == {
        repository["spec"]["url"]
    }


@pytest.mark.parametrize(("folder", "kind"), [("hpa", "HorizontalPodAutoscaler"), ("keda", "ScaledObject")])
def test_an_autoscaler_is_for_the_group_of_the_other_example(folder: str, kind: str) -> None:
    found, group = manifest(folder, kind), manifest("host-group", "WasmCloudHostConfig")
    target = {"apiVersion": HOST_CONFIGS.api_version, "kind": HOST_CONFIGS.kind, "name": group["metadata"]["name"]}
    assert found["spec"]["scaleTargetRef"] == target
    assert found["metadata"]["namespace"] == group["metadata"]["namespace"]
    assert "hostReplicas" not in group["spec"], "whoever applies the group again would undo the autoscaler"


def test_the_name_of_an_application_is_free_for_its_service() -> None:
    """A group of hosts has a Service of its name, too."""
    groups = {named(item) for item in manifests("host-group") if item["kind"] in {"WasmCloudHostConfig", "Service"}}
    applications = {named(manifest(folder, "Application")) for folder in ("hello", "secret")}
    assert groups & applications == set()


def named(found: Manifest) -> tuple[str, str]:
    return found["metadata"]["namespace"], found["metadata"]["name"]


def test_the_group_and_wadm_meet_at_the_nats_of_the_example() -> None:
    group = manifest("host-group", "WasmCloudHostConfig")["spec"]
    service = next(item for item in manifests("host-group") if item["kind"] == "Service")
    address = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc.cluster.local"
    assert group["natsAddress"] == f"nats://{address}"
    wadm = next(item for item in manifests("host-group") if item["metadata"]["name"] == "wadm")
    [container] = wadm["spec"]["template"]["spec"]["containers"]
    assert {"name": "WADM_NATS_SERVER", "value": address} in container["env"]
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    assert ports == {"client": 4222, "leafnodes": 7422}
    config = yaml.safe_load((EXAMPLES / "host-group/nats.yaml").read_text().split("\n---")[0])["data"]["nats.conf"]
    assert "port: 7422" in config
    assert "domain: default" in config


def test_the_secret_is_there_and_its_reader_may_read_it() -> None:
    application, secret = manifest("secret", "Application"), manifest("secret", "Secret")
    [policy] = application["spec"]["policies"]
    component = application["spec"]["components"][0]["properties"]
    [use] = component["secrets"]
    assert use["properties"] == {"policy": policy["name"], "key": secret["metadata"]["name"], "field": "text"}
    assert "text" in secret["stringData"]
    reader = Reader("hello", "wasmcloud-secrets")
    wanted = [*make_impersonation(reader, "trellis-system"), *make_reading(reader, [secret["metadata"]["name"]])]
    assert [item for item in manifests("secret") if item["kind"].startswith("Role")] == wanted


def test_only_the_lattice_of_the_secret_may_read_it_as_its_reader() -> None:
    grant, group = manifest("secret", "SecretGrant"), manifest("host-group", "WasmCloudHostConfig")["metadata"]
    home = ConnectionGrant(
        frozenset({group["namespace"]}), frozenset({(group["namespace"], "hello")}), (view_grant(grant),)
    )
    [use] = uses_of(manifest("secret", "Application"))
    around = RuleInputs(home, Token("A", "M", "greeter"), frozenset(), "kube")
    row = judge(manifest("secret", "Application"), use, around)
    assert row.identity is not None
    assert row.identity.user == "system:serviceaccount:hello:wasmcloud-secrets"
    assert grant["spec"]["serviceAccounts"] == ["wasmcloud-secrets"]


def test_the_secret_of_the_vault_is_that_of_the_other_example() -> None:
    external, secret = manifest("external-secret", "ExternalSecret"), manifest("secret", "Secret")
    assert external["metadata"]["namespace"] == secret["metadata"]["namespace"]
    assert external["spec"]["target"]["name"] == secret["metadata"]["name"]
    assert [item["secretKey"] for item in external["spec"]["data"]] == list(secret["stringData"])


def test_the_controllers_have_their_modules_and_trellis_may_be_their_accounts() -> None:
    made = {item["name"]: item["files"] for item in kustomization("controllers")["configMapGenerator"]}
    found = [item for item in manifests("controllers") if item["kind"] == "WasmController"]
    for item in found:
        module = item["spec"]["module"]["configMap"]
        assert made[module["name"]] == [module["key"]]
        assert (EXAMPLES / "controllers" / module["key"]).exists()
    permissions = list(yaml.safe_load_all((EXAMPLES / "controllers/rbac.yaml").read_text()))
    actors = actors_of("team-a", [item["spec"]["serviceAccountName"] for item in found])
    assert permissions == manifests_of(actors, [], "trellis-system")


@pytest.mark.parametrize("folder", folders())
def test_no_image_floats(folder: str) -> None:
    for image in images(manifests(folder)):
        tag = image.rsplit("/", 1)[-1].partition(":")[2]
        assert tag, image
        assert tag != "latest", image


LINES = sorted(set(re.findall(r"`trellis ([^`]*)`", README)))


@pytest.mark.parametrize("line", LINES)
def test_every_command_of_the_page_exists(line: str) -> None:
    expect_command(line)
