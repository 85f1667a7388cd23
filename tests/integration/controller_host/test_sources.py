"""Modules from every kind of source, by the whole service: modules that run, modules that are refused, and sources that
delay no others.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.guests.controllers_world import CONFIG_MAPS, Host, Manifest, Tenant, until
from support.guests.wat_guests import guest
from unit.node_installer.servers import Answer, Registry, Request, Server, certificates, serving

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

WASM = guest("good")
SHA = hashlib.sha256(WASM).hexdigest()
LOGIN = "me:hunter2"
SECRETS: Manifest = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}


@dataclass
class Place:
    """A server of modules: a registry that wants a password, files, and addresses that say nothing until ``let``."""

    registry: Registry
    server: Server
    digest: str
    let: threading.Event
    requested: list[Request] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"{self.server.url}/{path}"

    def image(self, digest: str = "") -> str:
        return f"{self.server.host}/team/shim@{digest or self.digest}"


@contextmanager
def serving_modules(tls: Path) -> Iterator[Place]:
    registry, let = Registry(login=LOGIN), threading.Event()
    digest = registry.manifest(None, registry.blob(WASM, "application/wasm"))

    def respond(request: Request) -> Answer:
        if request.path.startswith("/tarpit"):
            let.wait()
            return Answer(503)
        if request.path == "/good.wasm":
            return Answer(body=WASM)
        if request.path.startswith(("/v2/team/shim/", "/token")):
            return registry.respond(request)
        return Answer(404)

    with serving(respond, tls) as server:
        registry.url = server.url
        try:
            yield Place(registry, server, digest, let, server.requests)
        finally:
            let.set()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with serving_modules(certificates(tmp_path / "tls")) as found:
        yield found


@pytest.fixture
def allowed(host: Host, tmp_path: Path) -> Host:
    """Return the host, which trusts the place's certificate and may connect to this machine."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "good.wasm").write_bytes(WASM)
    settings = {
        "SSL_CERT_FILE": str(tmp_path / "tls" / "ca.pem"),
        "TRELLIS_CONTROLLER_SOURCE_NETWORKS": "127.0.0.0/8",
        "TRELLIS_CONTROLLER_MODULES_DIR": str(modules),
    }
    return dataclasses.replace(host, settings=host.settings | settings)


def pull_secret(tenant: Tenant, place: Place, name: str, login: str) -> None:
    auth = base64.b64encode(login.encode()).decode()
    config = json.dumps({"auths": {place.server.host: {"auth": auth}}})
    metadata = {"namespace": tenant.name, "name": name}
    data = {".dockerconfigjson": base64.b64encode(config.encode()).decode()}
    tenant.make(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": metadata,
            "data": data,
        }
    )


async def test_each_source_runs_or_states_the_reason(
    allowed: Host, tenant: Tenant, place: Place, tmp_path: Path
) -> None:
    volume = tmp_path / "modules" / "volumes" / tenant.name / "claim"
    volume.mkdir(parents=True)
    (volume / "good.wasm").write_bytes(WASM)
    tenant.account("any", CONFIG_MAPS, SECRETS)
    tenant.module("in-config-map", WASM)
    pull_secret(tenant, place, "right", LOGIN)
    pull_secret(tenant, place, "wrong", "me:guess")
    runs: dict[str, Manifest] = {
        "from-config-map": {"configMap": {"name": "in-config-map", "key": "module.wasm"}, "sha256": SHA},
        "from-url": {"url": place.url("good.wasm"), "sha256": SHA},
        "from-registry": {"oci": {"image": place.image(), "pullSecret": {"name": "right"}}},
        "from-path": {"path": "good.wasm", "sha256": SHA},
        "from-volume": {"pvc": {"claimName": "claim", "path": "good.wasm"}, "sha256": SHA},
    }
    refused: dict[str, tuple[str, Manifest]] = {
        "another-sum": ("ChecksumMismatch", {"url": place.url("good.wasm"), "sha256": "0" * 64}),
        "no-file": ("ModuleNotFound", {"url": place.url("none.wasm"), "sha256": SHA}),
        "no-image": (
            "ModuleNotFound",
            {"oci": {"image": place.image(f"sha256:{'0' * 64}"), "pullSecret": {"name": "right"}}},
        ),
        "no-password": ("ModuleForbidden", {"oci": {"image": place.image()}}),
        "wrong-password": ("ModuleForbidden", {"oci": {"image": place.image(), "pullSecret": {"name": "wrong"}}}),
        "no-secret": ("ModuleNotFound", {"oci": {"image": place.image(), "pullSecret": {"name": "none"}}}),
        "elsewhere": ("SourceNotAllowed", {"url": "https://169.254.169.254/good.wasm", "sha256": SHA}),
        "no-volume": ("ModuleNotFound", {"pvc": {"claimName": "other", "path": "good.wasm"}, "sha256": SHA}),
    }
    tenant.config_map("x")
    for name, source in {**runs, **{name: source for name, (_, source) in refused.items()}}.items():
        tenant.controller(name, source=source, serviceAccountName="any")
    async with allowed.serving():
        for name in runs:
            await until(lambda name=name: ready(tenant, name), f"{name} runs")
        await until(lambda: allowed.metric("trellis_controller_call_seconds_count") >= len(runs), "all are called")
        for name, (reason, _) in refused.items():
            await until(
                lambda name=name, reason=reason: tenant.condition(name, "Accepted") == ("False", reason),
                f"{name} is refused as {reason}: {tenant.condition(name, 'Accepted')}",
            )
        assert "hunter2" not in allowed.log.read_text()
        assert "hunter2" not in json.dumps([tenant.status(name) for name in refused])


def ready(tenant: Tenant, name: str) -> bool:
    return tenant.condition(name, "Ready") == ("True", "Running")


@pytest.mark.thorough
async def test_addresses_that_never_answer_delay_no_other_source(
    allowed: Host, tenants: Callable[[], Tenant], place: Place
) -> None:
    bad, good = tenants(), tenants()
    for item in (bad, good):
        item.account("any", CONFIG_MAPS)
    for number in range(20):
        source = {"url": place.url(f"tarpit-{number}"), "sha256": SHA}
        bad.controller(f"tarpit-{number}", source=source, serviceAccountName="any")
    async with allowed.serving():
        await until(lambda: sum("tarpit" in item.path for item in place.requested) >= 3, "the share is taken")
        good.controller("good", source={"url": place.url("good.wasm"), "sha256": SHA}, serviceAccountName="any")
        await until(lambda: ready(good, "good"), "the other namespace's module comes")
        assert sum("tarpit" in item.path for item in place.requested) == 3, "no more than its share"
        await until(lambda: bad.condition("tarpit-1", "Accepted") == ("Unknown", "Fetching"), "told")
        bad.module("mine", WASM)
        bad.controller("mine", source={"configMap": {"name": "mine", "key": "module.wasm"}}, serviceAccountName="any")
        await until(lambda: ready(bad, "mine"), "what comes by another way does not wait either")
        place.let.set()
        await until(
            lambda: any(bad.condition(f"tarpit-{n}", "Accepted") == ("False", "SourceUnavailable") for n in range(20)),
            "the server's answer is told",
        )


@pytest.mark.thorough
async def test_each_namespace_needs_its_own_permission_for_a_source_and_a_restart_needs_no_new_check(
    allowed: Host, tenants: Callable[[], Tenant], place: Place
) -> None:
    owner, thief = tenants(), tenants()
    source = {"oci": {"image": place.image(), "pullSecret": {"name": "pull"}}}
    for item, login in ((owner, LOGIN), (thief, "me:guess")):
        item.account("any", CONFIG_MAPS, SECRETS)
        pull_secret(item, place, "pull", login)
    owner.controller("module", source=source, serviceAccountName="any")
    async with allowed.serving():
        await until(lambda: ready(owner, "module"), "the owner's runs")
        thief.controller("module", source=source, serviceAccountName="any")
        await until(lambda: thief.condition("module", "Accepted") == ("False", "ModuleForbidden"), "refused")
    thief.remove("module")
    place.requested.clear()
    async with allowed.serving():
        owner.config_map("x")
        await until(lambda: allowed.metric("trellis_controller_call_seconds_count") >= 1, "called after the restart")
        assert not place.requested, "it had shown its right before"
        path = f"/api/v1/namespaces/{thief.name}/secrets/pull"
        assert thief.api.call("DELETE", path)[0] == 200
        pull_secret(thief, place, "pull", LOGIN)
        thief.controller("module", source=source, serviceAccountName="any")
        await until(lambda: ready(thief, "module"), "with the right password it runs")
        manifests = [item for item in place.requested if "/manifests/" in item.path]
        assert {manifest.method for manifest in manifests} == {"HEAD"}
        assert not [item for item in place.requested if "/blobs/" in item.path], "it is here already"
