"""The network settings of the provisioner in a Job, used by the installer in this very form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from node_installer.fetch.web import basic
from node_installer.settings import read_settings
from provisioner.domain.resources import Task, make_installer_job
from provisioner.settings import Settings
from support.suite.job_container import CannotStartError, Kubelet
from trellis.installer_api.result import FailureReason, InstallResult
from trellis.installer_api.spec import InstallSpec
from trellis.provisioning.shims import view_shim, wanted_shim_for
from trellis.provisioning.views import Target
from trellis_dev.testing.builders import DIGEST, a_node
from unit.node_installer.servers import Answer, Registry, Server, certificates, serving
from unit.node_installer.world import ARCH, World, a_shim, a_world, snapshot

NAME = "containerd-shim-spin"
PASSWORD = "hunter2"
BINARY = "/opt/trellis/bin/" + NAME


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def a_registry(login: str) -> tuple[Registry, str]:
    """A private registry with the shim in it, and the artifact's digest."""
    registry = Registry(login=login)
    return registry, registry.manifest("1.0", registry.blob(a_shim(), title=NAME))


def a_job(fetch: dict[str, Any], *, removes: bool = False, **settings: Any) -> dict[str, Any]:
    """The Job for a Shim with this ``fetchStrategy``, or for its removal, by the provisioner's settings."""
    manifest = {
        "metadata": {"name": "spin", "uid": "uid-spin", "resourceVersion": "1"},
        "spec": {
            "fetchStrategy": fetch,
            "runtimeClass": {"name": "spin", "handler": "spin"},
            "rolloutStrategy": {"type": "recreate"},
        },
    }
    wanted = wanted_shim_for(view_shim(manifest), ARCH, require_checksum=True)
    spec = InstallSpec((wanted,))  # type: ignore[arg-type]
    task = Task(Target((("spin", DIGEST),)), handlers=("spin",), spec=spec, removes=removes)
    return make_installer_job(Settings(**settings).installer(), a_node(), task, 1, None)


def run(world: World, job: dict[str, Any], kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch) -> InstallResult:
    """Run the Job's container on a node, with nothing but what the Job and the kubelet give it."""
    environment = kubelet.environment(job)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    given = read_settings(job["spec"]["template"]["spec"]["containers"][0]["args"], environment)
    kept = {name: getattr(given, name) for name in ("ca_file", "docker_config", "pull_secrets")}
    return world.perform(given.operation, given.spec_text, **kept)


def docker_config(server: Server, login: str) -> str:
    user, _, password = login.partition(":")
    return json.dumps({"auths": {server.host: {"username": user, "password": password}}})


def test_ca_proxy_and_pull_secret_of_the_job_lead_to_a_private_registry(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, digest = a_registry(f"me:{PASSWORD}")
    with serving(registry.respond, tls) as server, serving(lambda _: Answer(500)) as proxy:
        registry.url = server.url
        job = a_job(
            {"oci": {"image": f"{server.host}/team/shim@{digest}", "pullSecret": {"name": "team-a"}}},
            installer_proxy_secret="proxy",
            installer_ca_config_map="our-ca/root.pem",
        )
        kubelet = Kubelet(
            tmp_path / "container",
            secrets={
                "proxy": {"HTTPS_PROXY": proxy.url.replace("http://", f"http://me:{PASSWORD}@")},
                "team-a": {".dockerconfigjson": docker_config(server, f"me:{PASSWORD}")},
            },
            config_maps={"our-ca": {"root.pem": (tls / "ca.pem").read_text()}},
        )
        world = a_world(tmp_path)
        result = run(world, job, kubelet, monkeypatch)
    assert result.ok, result.message
    assert world.disk.read(BINARY) == a_shim()
    assert {request.path for request in proxy.requests} == {f"CONNECT {server.host}"}
    assert all(request.headers["proxy-authorization"].startswith("Basic ") for request in proxy.requests)
    assert PASSWORD not in json.dumps(job)


def test_each_source_uses_the_pull_secret_it_names(tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, digest = a_registry(f"me:{PASSWORD}")
    with serving(registry.respond, tls) as server:
        registry.url = server.url
        job = a_job(
            {"oci": {"image": f"{server.host}/team/shim@{digest}", "pullSecret": {"name": "team-b"}}},
            installer_ca_config_map="our-ca",
        )
        kubelet = Kubelet(
            tmp_path / "container",
            secrets={
                "team-a": {".dockerconfigjson": docker_config(server, f"me:{PASSWORD}")},
                "team-b": {".dockerconfigjson": docker_config(server, "me:another")},
            },
            config_maps={"our-ca": {"ca.crt": (tls / "ca.pem").read_text()}},
        )
        world = a_world(tmp_path)
        before = snapshot(world.root)
        result = run(world, job, kubelet, monkeypatch)
    assert result.reason is FailureReason.DOWNLOAD_FAILED
    [requested] = [request for request in server.requests if request.path.startswith("/token")]
    assert requested.headers["authorization"] == basic("me:another")
    assert "another" not in result.message
    assert snapshot(world.root) == before


@pytest.mark.parametrize(
    ("secrets", "config_maps", "expected_text"),
    [
        pytest.param({}, {"our-ca": {"ca.crt": ""}}, ["pull secret 'team-a'", "namespace"], id="no pull secret"),
        pytest.param({"team-a": {".dockerconfigjson": "{}"}}, {}, ["ca.pem", "cannot be read"], id="no CA"),
    ],
)
def test_the_installer_itself_names_the_missing_pod_field(
    secrets: Any, config_maps: Any, expected_text: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = {"oci": {"image": f"127.0.0.1:9/team/shim@sha256:{'a' * 64}", "pullSecret": {"name": "team-a"}}}
    job = a_job(fetch, installer_ca_config_map="our-ca")
    result = run(a_world(tmp_path), job, Kubelet(tmp_path / "container", secrets, config_maps), monkeypatch)
    assert result.reason is FailureReason.DOWNLOAD_FAILED
    assert all(word in result.message for word in expected_text), result.message


def test_a_missing_proxy_keeps_the_container_from_starting(tmp_path: Path) -> None:
    job = a_job({"image": {"path": "/assets/spin", "sha256": "ab" * 32}}, installer_proxy_secret="proxy")
    with pytest.raises(CannotStartError, match="proxy"):
        Kubelet(tmp_path).environment(job)


def test_the_installer_reads_where_its_spans_go(tmp_path: Path) -> None:
    job = a_job(
        {"image": {"path": "/assets/spin", "sha256": "ab" * 32}},
        installer_otlp_endpoint="http://otel.observability:4318",
    )
    given = read_settings(["install"], Kubelet(tmp_path).environment(job))
    assert given.otlp_endpoint == "http://otel.observability:4318"
