"""Images in registries of real servers, as `trellis explain --v2-registry` asks: without TLS, with a private CA."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.suite.naming import lacking
from support.v2.components import component
from support.v2.explained import bare, kube_of
from trellis.kube.resources import NAMESPACES, SECRETS, WORKLOADS
from trellis.read_model.reading.cluster import Reading
from trellis.v2.images import ImageAnswer, ImageKey, ImageState
from trellis.v2.reasons import Reason
from trellis_cli.common.objects import ObjectName
from trellis_cli.common.settings import client_settings
from trellis_cli.v2.options import Flags, Sources, sources_of
from trellis_cli.v2.page import v2_page
from trellis_cli.v2.registries import ask_registries
from trellis_dev.fakes.fake import FakeKube
from unit.node_installer.servers import Answer, Registry, Server, certificates, serving

WASM = component(imports=[], exports=["wasi:http/incoming-handler@0.2.2"])
LOGIN = "me:hunter2"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("pki") / "tls")


@contextmanager
def registry(tls: Path | None) -> Iterator[Server]:
    made = Registry(login=LOGIN)
    made.manifest("1", made.blob(WASM, "application/wasm"))
    with serving(made.respond, tls) as server:
        made.url = server.url
        yield server


def put_login(kube: FakeKube, server: Server) -> None:
    kube.put(NAMESPACES, {"metadata": {"name": "apps"}})
    user, _, password = LOGIN.partition(":")
    config = json.dumps({"auths": {server.host: {"username": user, "password": password}}}).encode()
    data = {".dockerconfigjson": base64.b64encode(config).decode()}
    kube.put(SECRETS, {"metadata": {"namespace": "apps", "name": "pull"}, "data": data})


def sources(**flags: Any) -> Sources:
    return sources_of(client_settings(), "workload", Flags(registry=True, **flags))


async def asked(server: Server, tag: str = "1", **flags: Any) -> ImageAnswer:
    """Return the answer of a command with these flags, for a workload with a pull Secret."""
    kube, key = bare(), ImageKey("apps", f"{server.host}/team/shim:{tag}", "pull")
    put_login(kube, server)
    access = sources(**flags).registry
    assert access is not None
    answer = (await ask_registries(Reading(kube, "trellis-system"), {key}, access))[key]
    assert "hunter2" not in repr(answer)
    return answer


async def test_a_registry_without_tls_is_named_with_the_flag_that_permits_it() -> None:
    with registry(None) as server:
        for tag in ("1", "missing"):
            found = await asked(server, tag)
            assert (found.state, found.plain) == (ImageState.WITHOUT_TLS, False)
            assert lacking(found.detail, f"--v2-insecure-registry {server.host}", "plain http") == []
        assert all("authorization" not in request.headers for request in server.requests)


async def test_a_registry_without_tls_is_asked_with_permission() -> None:
    with registry(None) as server:
        found = await asked(server, insecure=[server.host])
        assert (found.state, found.plain, found.types is not None) == (ImageState.FOUND, True, True)
        missing = await asked(server, "missing", insecure=[server.host])
        assert (missing.state, missing.plain) == (ImageState.NOT_FOUND, True)


async def test_a_registry_with_a_private_ca_is_named_with_the_flag_that_trusts_it(tls: Path) -> None:
    with registry(tls) as server:
        for flags in ({}, {"insecure": [server.host]}):
            found = await asked(server, "missing", **flags)
            assert found.state is ImageState.NOT_TRUSTED
            assert lacking(found.detail, "--v2-registry-ca-file") == []
        assert server.requests == []


async def test_a_registry_with_a_private_ca_is_asked_with_the_ca(tls: Path) -> None:
    with registry(tls) as server:
        found = await asked(server, ca_file=tls / "ca.pem")
        assert (found.state, found.plain) == (ImageState.FOUND, False)
        assert (await asked(server, "missing", ca_file=tls / "ca.pem")).state is ImageState.NOT_FOUND


async def test_a_token_server_without_tls_is_not_a_problem_of_the_registry(tls: Path) -> None:
    made = Registry(login=LOGIN)
    with serving(lambda _: Answer(404)) as tokens, serving(made.respond, tls) as server:
        made.url = tokens.url
        found = await asked(server, ca_file=tls / "ca.pem")
        assert found.state is ImageState.UNKNOWN
        assert lacking(found.detail, f"--v2-insecure-registry {tokens.host}") == []
        assert tokens.requests == []


@pytest.mark.parametrize("permitted", [True, False])
async def test_a_registry_of_plain_http_is_the_cause_for_a_host_that_requires_https(permitted: bool) -> None:
    """Hosts report such a pull as NOT_FOUND, as any other that fails."""
    kube = kube_of("04", 20)
    with registry(None) as server:
        put_login(kube, server)
        for item in kube.objects(WORKLOADS):
            if item["metadata"]["ownerReferences"][0]["name"].startswith("no-tag-"):
                [part] = item["spec"]["components"]
                part |= {"image": f"{server.host}/team/shim:1", "imagePullSecret": {"name": "pull"}}
                kube.put(WORKLOADS, item)
        chosen = sources(insecure=[server.host] if permitted else [])
        page = await v2_page(Reading(kube, "trellis-system"), ObjectName("workloaddeployment", "no-tag"), chosen)
    assert page.cause is not None
    assert page.cause.reason == (Reason.REGISTRY_WITHOUT_TLS if permitted else Reason.PULL_FAILED)
    flag = "--allow-insecure-registries" if permitted else f"--v2-insecure-registry {server.host}"
    assert lacking(page.headline, server.host, flag) == []
